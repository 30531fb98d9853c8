"""Writes lakehouse/jars.lock anew: `python deploy/lock_jars.py`, after a version below is changed.

For maintainers; it needs Maven, which users do not. Maven resolves what the lakehouse then fetches
by exact coordinates: it alone reads Pulsar's BOM, without which the versions do not fit together.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).parents[1] / "lakehouse" / "jars.lock"
DELTA = "4.4.0"  # pairs with the PySpark in pyproject.toml
SCALA = "2.13"
SPARK = "4.2"
PULSAR = "4.2.4"
POSTGRESQL = "42.7.8"  # the driver, for a metastore there

HEADER = """\
# Jars by exact Maven coordinates (group:artifact:version[:classifier]) with their SHA-256.
# Made by deploy/lock_jars.py; `lakehouse` fetches them and refuses any other content.
"""
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lock</groupId><artifactId>lock</artifactId><version>1</version>
  <dependencyManagement><dependencies>{managed}</dependencies></dependencyManagement>
  <dependencies>{wanted}</dependencies>
</project>
"""
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}"
    "</dependency>"
)
LEFT_OUT = ("tests", "windows-x86_64")  # classifiers nobody runs here
BOM = "<type>pom</type><scope>import</scope>"


def resolve(wanted: str, managed: str = "", only: str = "") -> list[str]:
    """Lock lines of all runtime jars that Maven finds for a pom with these dependencies."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pom.xml").write_text(POM.format(managed=managed, wanted=wanted))
        subprocess.run(
            [
                *("mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies"),
                "-DincludeScope=runtime",
                "-DoutputDirectory=jars",
                "-Dmdep.useRepositoryLayout=true",
                f"-DincludeArtifactIds={only}",
            ],
            cwd=folder,
            check=True,
        )
        jars = Path(folder) / "jars"
        found = [jar for jar in jars.rglob("*.jar") if not jar.stem.endswith(LEFT_OUT)]
        return sorted(line(jar.relative_to(jars), jar) for jar in found)


def line(place: Path, jar: Path) -> str:
    """`group:artifact:version[:classifier] sha256` of a jar in a Maven repository's layout."""
    *group, artifact, version, name = place.parts
    classifier = name.removesuffix(".jar").removeprefix(f"{artifact}-{version}").lstrip("-")
    parts = [".".join(group), artifact, version, *([classifier] if classifier else [])]
    return f"{':'.join(parts)} {hashlib.sha256(jar.read_bytes()).hexdigest()}"


def main() -> None:
    """Resolve both sets and replace the lock."""
    if shutil.which("mvn") is None:
        sys.exit("Maven (`mvn`) is not on the PATH; it is needed to write the lock anew.")
    delta_spark = f"delta-spark_{SPARK}_{SCALA}"
    delta = DEPENDENCY.format("io.delta", delta_spark, DELTA, "")
    broker = DEPENDENCY.format("org.apache.pulsar", "pulsar-broker", PULSAR, "")
    bom = DEPENDENCY.format("org.apache.pulsar", "pulsar", PULSAR, BOM)
    # Delta's other dependencies are Spark's own, or for catalogs that are not used here.
    spark = resolve(delta, only=f"{delta_spark},delta-storage")
    pulsar = resolve(broker, managed=bom)
    driver = DEPENDENCY.format("org.postgresql", "postgresql", POSTGRESQL, "")
    postgresql = resolve(driver, only="postgresql")
    sections = ["[spark]", *spark, "", "[postgresql]", *postgresql, "", "[pulsar]", *pulsar]
    LOCK.write_text(HEADER + "\n" + "\n".join(sections) + "\n")


if __name__ == "__main__":
    main()
