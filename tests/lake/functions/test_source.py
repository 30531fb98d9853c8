"""Tests that the file of a function is found and checked, without running it."""

from pathlib import Path

import pytest

from lake.functions.source import checksum, count_of, read_source

MAIL = '''
"""Never run here."""
import re
import json as text
raise RuntimeError

def domain(mail, default=None):
    def inner():
        yield 1
    return mail
'''


def test_the_text_of_the_file_is_returned(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mail.py").write_text(MAIL)
    assert read_source(tmp_path, "own.mail:domain") == ("own/mail.py", MAIL)


@pytest.mark.parametrize(
    ("definition", "counts"),
    [
        ("def f(a, b): ...", (2, 2)),
        ("def f(a, /, b=1): ...", (1, 2)),
        ("def f(a, *rest): ...", (1, None)),
        ("def f(a): ...\ndef f(a, b): ...", (2, 2)),
    ],
)
def test_the_arguments_of_a_function_are_counted(
    definition: str, counts: tuple[int, int | None]
) -> None:
    assert count_of(definition, "f") == counts


@pytest.mark.parametrize(
    ("python", "text", "says"),
    [
        ("mail", "", "is 'mail'; write it as 'module:function'"),
        ("../mail:f", "", "write it as 'module:function'"),
        ("mail:f()", "", "write it as 'module:function'"),
        ("other:f", "", "other.py cannot be read (No such file or directory); create this file"),
        ("mail:f", "def f(:", "mail.py, line 1: invalid syntax"),
        ("mail:f", "def g(): ...", "the function 'f', which"),
        ("mail:f", "class A:\n    def f(self): ...", "it defines none"),
        ("mail:f", "async def f(a): ...", "is a coroutine or a generator"),
        ("mail:f", "def f(a):\n    yield a", "is a coroutine or a generator"),
        ("mail:f", "def f(a, *, b): ...", "needs the keyword argument 'b'"),
        ("mail:f", "from . import x\ndef f(a): ...", "imports a module beside it (line 1)"),
        ("mail:f", "import beside\ndef f(a): ...", "imports 'beside' (line 1); only this file"),
        ("mail:f", "def f(a):\n    from folder.x import y", "imports 'folder.x' (line 2)"),
    ],
)
def test_what_cannot_be_called_is_refused(
    tmp_path: Path, python: str, text: str, says: str
) -> None:
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.py").write_text("")
    (tmp_path / "mail.py").write_text(text)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared
        read_source(tmp_path, python)
    assert says in str(caught.value)


def test_a_file_outside_of_the_project_is_refused(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "mail.py").write_text("def f(a): ...")
    (project / "mail.py").symlink_to(tmp_path / "mail.py")
    (project / "latin.py").write_bytes(b"# \xe9\ndef f(a): ...")
    for python, says in (("mail:f", "is a link to a file outside"), ("latin:f", "is not UTF-8")):
        with pytest.raises(ValueError, match=says):
            read_source(project, python)
    with pytest.raises(ValueError, match="not read from a file"):
        read_source(None, "mail:f")


def test_a_checksum_tells_parts_apart() -> None:
    assert len({checksum("a", "b"), checksum("ab"), checksum("a", "c"), checksum("", "ab")}) == 4
