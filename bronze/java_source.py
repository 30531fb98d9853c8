"""Classes of ours that Spark's Java is to have: compiled by the compiler that Spark brings."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from bronze.settings import LakeSettings


def classes_folder(settings: LakeSettings) -> Path:
    """A folder of the driver's machine for what is compiled while it runs."""
    return settings.home_dir / "spark" / "classes"


def compile_source(jvm: Any, package: str, name: str, classes: Path) -> None:
    """Compile a class of ours into a folder, for a class loader to find it there.

    Args:
        jvm: the driver's, by py4j.
        package: the Python package that has the source; it may lie in a wheel.
        name: of the class; the source is `NAME.java`.
        classes: the folder, which is made if it is absent.
    """
    source = files(package).joinpath(f"{name}.java").read_text(encoding="utf-8")
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(f"{name}.java", jvm.java.io.StringReader(source))
    for full_name, code in compiler.getBytecodes().items():
        file = classes.joinpath(*full_name.split(".")).with_suffix(".class")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
