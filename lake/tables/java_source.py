"""Compiles our Java classes with the compiler that ships with Spark."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from lake.settings.settings import LakeSettings


def classes_folder(settings: LakeSettings) -> Path:
    """The folder on the driver's machine for classes that are compiled at run time."""
    return settings.home_dir / "spark" / "classes"


def compile_source(jvm: Any, package: str, name: str, classes: Path, loader: Any = None) -> None:
    """Compile one of our classes into a folder where a class loader can find it.

    Args:
        jvm: py4j's view of the driver's JVM.
        package: the Python package that holds the source, possibly in a wheel.
        name: the name of the class; its source is `NAME.java`.
        classes: the folder, which is created if it does not exist.
        loader: a class loader that finds the classes which the source names; None if they are on
            Java's class path.
    """
    source = files(package).joinpath(f"{name}.java").read_text(encoding="utf-8")
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    if loader is not None:
        compiler.setParentClassLoader(loader)
    compiler.cook(f"{name}.java", jvm.java.io.StringReader(source))
    for full_name, code in compiler.getBytecodes().items():
        file = classes.joinpath(*full_name.split(".")).with_suffix(".class")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
