"""Rewrites both jars.lock files. Run `python deploy/lock_jars.py` after changing a version below.

This is for maintainers and needs Maven, unlike the lakehouse itself. Maven resolves the
dependencies, and the lakehouse fetches the result by exact coordinates. Only Maven reads Pulsar's
BOM, without which the versions do not fit together.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "lakehouse" / "runtime" / "jars.lock"
FLINK_LOCK = ROOT / "benchmarks" / "flink" / "jars.lock"
DELTA = "4.4.0"  # must match the PySpark in pyproject.toml
SCALA = "2.13"
SPARK = "4.2"
PULSAR = "4.2.4"
POSTGRESQL = "42.7.8"  # the JDBC driver, for a metastore in PostgreSQL
SPARKS_HADOOP = "3.5.0"  # the version in PySpark, which does not include the S3 client
# The version that Hadoop's S3 client names, in a bundle of 600 MB. It needs only these modules.
AWS = "2.35.4"
AWS_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
FLINK = "1.18.1"  # the last version with a release of the Pulsar connector
FLINK_PULSAR = "4.1.0-1.18"
PAIMON = "0.8.2"
HADOOP = "2.8.3-10.0"  # classes that Paimon refers to, even for local files
LOG4J = "2.17.1"

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
NO_BUNDLE = (
    "<exclusions><exclusion><groupId>software.amazon.awssdk</groupId><artifactId>bundle"
    "</artifactId></exclusion></exclusions>"
)
LEFT_OUT = ("tests", "windows-x86_64")  # classifiers that are not needed
BOM = "<type>pom</type><scope>import</scope>"
ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def resolve(wanted: str, managed: str = "", only: str = "") -> list[str]:
    """The lock lines of all runtime jars that Maven finds for a POM with these dependencies.

    Args:
        wanted: the dependencies, as XML.
        managed: the managed dependencies, as XML.
        only: artifact ids to which the result is limited, separated by commas; all if empty.
    """
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
    """`group:artifact:version[:classifier] sha256` of a jar.

    Args:
        place: its path in the layout of a Maven repository.
        jar: the file.
    """
    *group, artifact, version, name = place.parts
    classifier = name.removesuffix(".jar").removeprefix(f"{artifact}-{version}").lstrip("-")
    parts = [".".join(group), artifact, version, *([classifier] if classifier else [])]
    return f"{':'.join(parts)} {hashlib.sha256(jar.read_bytes()).hexdigest()}"


def flink() -> list[str]:
    """The parts of Flink's distribution that the job needs, with the connectors.

    The distribution itself is not in the Maven registry. Jars that contain their dependencies, or
    get them from another jar here, are taken without dependencies.
    """
    whole = ("clients", "connector-base", "connector-files", "statebackend-rocksdb")
    alone = (
        *("table-api-java-uber", "table-planner-loader", "table-runtime", "json", "csv", "cep"),
        *("sql-client", "sql-gateway", "sql-gateway-api", "python"),
    )
    logs = ("api", "core", "slf4j-impl", "1.2-api")
    return resolve(
        "".join(
            [
                *(DEPENDENCY.format("org.apache.flink", f"flink-{x}", FLINK, "") for x in whole),
                *(DEPENDENCY.format("org.apache.flink", f"flink-{x}", FLINK, ALONE) for x in alone),
                DEPENDENCY.format("org.apache.flink", "flink-connector-pulsar", FLINK_PULSAR, ""),
                DEPENDENCY.format("org.apache.flink", "flink-shaded-hadoop-2-uber", HADOOP, ALONE),
                DEPENDENCY.format("org.apache.paimon", "paimon-flink-1.18", PAIMON, ALONE),
                *(
                    DEPENDENCY.format("org.apache.logging.log4j", f"log4j-{x}", LOG4J, ALONE)
                    for x in logs
                ),
            ]
        )
    )


def s3() -> list[str]:
    """The jars that Spark's Hadoop needs for S3 and that Spark does not include."""
    found = resolve(
        DEPENDENCY.format("org.apache.hadoop", "hadoop-aws", SPARKS_HADOOP, NO_BUNDLE)
        + "".join(DEPENDENCY.format("software.amazon.awssdk", x, AWS, "") for x in AWS_MODULES)
    )
    groups = ("org.apache.hadoop:", "software.amazon.", "org.reactivestreams:")
    return [each for each in found if each.startswith(groups)]


def main() -> None:
    """Resolve all sets and replace the locks."""
    if shutil.which("mvn") is None:
        sys.exit("Maven (`mvn`) is not on the PATH. Install it to write the lock again.")
    delta_spark = f"delta-spark_{SPARK}_{SCALA}"
    delta = DEPENDENCY.format("io.delta", delta_spark, DELTA, "")
    broker = DEPENDENCY.format("org.apache.pulsar", "pulsar-broker", PULSAR, "")
    bom = DEPENDENCY.format("org.apache.pulsar", "pulsar", PULSAR, BOM)
    # Delta's other dependencies are part of Spark, or belong to catalogs that are not used here.
    spark = resolve(delta, only=f"{delta_spark},delta-storage")
    pulsar = resolve(broker, managed=bom)
    driver = DEPENDENCY.format("org.postgresql", "postgresql", POSTGRESQL, "")
    postgresql = resolve(driver, only="postgresql")
    sections = {"spark": spark, "postgresql": postgresql, "s3": s3(), "pulsar": pulsar}
    lines = [line for name, jars in sections.items() for line in ("", f"[{name}]", *jars)]
    write(LOCK, lines[1:])
    write(FLINK_LOCK, ["[flink]", *flink()])


def write(lock: Path, lines: list[str]) -> None:
    """Replace a lock file."""
    lock.write_text(HEADER + "\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
