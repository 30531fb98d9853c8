"""Reads the source of the functions that a topic file declares, without running it.

A function is one file, which is sent as text to wherever it is called. It therefore runs on the
workers of a cluster as on a laptop, and a checksum of the text says when its results may change.
"""

from __future__ import annotations

import ast
import re
import sys
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

PYTHON = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def read_source(folder: Path | None, python: str) -> tuple[str, str]:
    """Read the file of a function, and check what can be checked without running it.

    Called when a topic file is read.

    Args:
        folder: the folder of the topic file; None if the declarations are from no file.
        python: `<module>:<function>`, with the module's path in the folder, such as
            `functions.mail:domain_of` for the function `domain_of` in `functions/mail.py`.

    Returns:
        The path of the file in the folder, and its text.

    Raises:
        ValueError: there is no such file or function, or the file needs others of the project. The
            text is the rest of a sentence that begins with the key.
    """
    if not PYTHON.fullmatch(python):
        _refuse(f"is '{python}'; write it as 'module:function', such as 'functions.mail:domain'")
    module, _, name = python.partition(":")
    file = module.replace(".", "/") + ".py"
    if folder is None:
        _refuse(f"is '{python}', but the topics were not read from a file, so there is no {file}")
    place = folder / file
    try:
        if not place.resolve().is_relative_to(folder.resolve()):
            _refuse(f"is '{python}', but {file} is a link to a file outside of {folder}")
        text = place.read_text(encoding="utf-8")
    except OSError as error:
        _refuse(f"is '{python}', but {place} cannot be read ({error.strerror}); create this file")
    except UnicodeDecodeError:
        _refuse(f"is '{python}', but {place} is not UTF-8")
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        _refuse(f"is '{python}', but {place}{line}: {error.args[0]}")
    _require_alone(tree, folder, place)
    _require_function(tree, name, place)
    return file, text


def count_of(text: str, name: str) -> tuple[int, int | None]:
    """How many arguments a function of a file takes: at least, and at most if there is a limit."""
    found = _definition(ast.parse(text), name)
    if found is None:
        return 0, None
    given = found.args
    most = len(given.posonlyargs) + len(given.args)
    return most - len(given.defaults), None if given.vararg else most


def checksum(*parts: str) -> str:
    """A checksum of what decides the results of a function."""
    return sha256("\0".join(parts).encode()).hexdigest()[:16]


def _require_alone(tree: ast.Module, folder: Path, place: Path) -> None:
    """Check that a file imports no other file of the project, which would not be there."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = ["." if node.level else str(node.module)]
        for name in names:
            first = name.partition(".")[0]
            is_standard = first in sys.stdlib_module_names
            is_own = (folder / f"{first}.py").is_file() or _has_python(folder / first)
            if not first or (is_own and not is_standard):
                what = f"'{name}'" if first else "a module beside it"
                _refuse(
                    f"is in {place}, which imports {what} (line {node.lineno}); only this file is "
                    "sent to the workers. Put what it needs into it, or into a package that is "
                    "installed"
                )


def _has_python(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.py"))


def _require_function(tree: ast.Module, name: str, place: Path) -> None:
    found = _definition(tree, name)
    if found is None:
        known = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
        _refuse(
            f"names the function '{name}', which {place} does not define at its top; "
            f"it defines {', '.join(known) or 'none'}"
        )
    own = (ast.AsyncFunctionDef, ast.FunctionDef, ast.Lambda, ast.ClassDef)
    inner = {
        id(part)
        for node in ast.walk(found)
        if isinstance(node, own) and node is not found
        for part in ast.walk(node)
    }
    yields = any(
        isinstance(node, ast.Yield | ast.YieldFrom) and id(node) not in inner
        for node in ast.walk(found)
    )
    needed = [
        a.arg
        for a, d in zip(found.args.kwonlyargs, found.args.kw_defaults, strict=True)
        if d is None
    ]
    if isinstance(found, ast.AsyncFunctionDef) or yields:
        _refuse(f"names '{name}', which is a coroutine or a generator; it must return a value")
    if needed:
        _refuse(f"names '{name}', which needs the keyword argument '{needed[0]}'")


def _definition(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The last definition of a function at the top of a file, which is the one that counts."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in tree.body if isinstance(node, kinds) and node.name == name]
    return found[-1] if found else None


def _refuse(what: str) -> NoReturn:
    raise ValueError(what)
