"""`lakehouse doctor`: find present and imminent problems, and say what to do about them.

It changes nothing and needs no Spark. Each check is a function that yields findings.
"""

import contextlib
import datetime as dt
import difflib
import hashlib
import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import httpx
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from bronze.expiry import standing
from bronze.ingest import query_name, refuse_other_address
from bronze.retention import risks
from gold.sql_client import endpoint_running
from lake import DISTRIBUTION
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import newest_batch
from lake.streams.consistency import disagreements
from lake.streams.given_up import given_up
from lake.streams.pause import paused_since
from lake.tables.format import FormatError, format_of, require_known
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec, bronze_table
from lake.tables.storage import in_bucket, require_bucket, storage_options
from lakehouse.imports.state import ImportState, import_states
from lakehouse.runtime.address import console_url
from lakehouse.runtime.broker import LOOPBACK, broker_answers, is_local
from lakehouse.runtime.jars import COMPLETE, jar_folder, read_lock
from lakehouse.runtime.java import SUPPORTED, find_java, java_version
from lakehouse.runtime.metastore import jar_groups
from lakehouse.runtime.ports import require_free_port
from lakehouse.sinks.state import SinkState, sink_states
from lakehouse.sql.connect import PORT_SETTING
from lakehouse.sql.guard import guard_state, unlimited_users
from pulsar_spark.broker.admin import PulsarAdmin, TopicNotFoundError
from pulsar_spark.errors import LakehouseError, SettingsError
from pulsar_spark.read import incomplete
from silver.contract.tables import silver_tables
from silver.refine import QUERY

SHOWN = ("pyspark", "delta-spark", "deltalake", "pulsar-client", "dbt-core")
OLDEST_BROKER, NEXT_BROKER = Version("4.0"), Version("5.0")
GIB = 1 << 30
UNFINISHED = dt.timedelta(minutes=10)
OVERDUE = dt.timedelta(days=2)  # upkeep deletes once a day
LEAST_FREE, LITTLE_FREE = 1 * GIB, 5 * GIB
# Variables that are not settings, but are read by the profiles of dbt, by Superset or by the tests.
OTHERS = ("DECLARED_TOPICS", "DBT_SCHEMA", "BUILD", "SUPERSET", "KILLS", "CHAOS")

State = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    """The result of a check, as one row of the printed table."""

    check: str
    state: State
    found: str
    remedy: str = ""


COLUMNS = ("check", "state", "found", "what to do")


def examine(lake: Lake) -> list[Finding]:
    """Run all checks. Returns the findings, including those with state "ok"."""
    answers = broker_answers(lake.settings)
    found = [
        *python(),
        *packages(),
        *java(),
        *jars(lake.settings),
        *variables(os.environ),
        *folders(lake.settings),
        *disk(lake.settings),
        *bucket(lake.settings),
        *ports(lake.settings, answers=answers),
        *sql(lake.settings),
        *broker(lake.settings, answers=answers),
    ]
    if answers:
        found += declared_topics(lake)
    formats = [*lake_format(lake.settings)]
    found += formats
    if any(each.state == "fail" for each in formats):
        return found
    found += chunks(lake)
    tables: dict[str, list[TableSpec]] = {
        query_name(name): [bronze_table(name)] for name in lake.topics.topics
    }
    for query, owned in {**tables, QUERY: silver_tables(lake.topics)}.items():
        found += streams(lake, query, owned)
    found += kept(lake, dt.datetime.now(dt.timezone.utc))
    found += map(imported, import_states(lake))
    for state in sink_states(lake):
        found += sink(lake, state)
    return found


def chunks(lake: Lake) -> Iterator[Finding]:
    """Whether chunked messages have been incomplete for longer than `UNFINISHED`."""
    path = lake.named("bronze", incomplete.NAME).path
    table = incomplete.IncompleteTable(path, storage_options(lake.settings) or {})
    if found := table.still_open(UNFINISHED):
        first = "{topic_partition} {message} at {last_chunk}".format(**found[0])
        yield Finding(
            *("chunks", "warn", f"{len(found)} chunked messages are incomplete, such as {first}"),
            f"Their producers died or their first chunks are gone; bronze.{incomplete.NAME} lists "
            "them. Have them sent again if they are needed.",
        )


def kept(lake: Lake, now: dt.datetime) -> Iterator[Finding]:
    """Whether messages older than their topic's `keep` have been deleted."""
    for topic in lake.topics.topics.values():
        found = standing(lake, topic, now)
        if found is None:
            continue
        overdue = standing(lake, topic, now - OVERDUE) if found.old > found.needed else None
        check = f"keep {topic.name}"
        if overdue and overdue.old > overdue.needed:
            count, before = overdue.old - overdue.needed, f"{overdue.since:%Y-%m-%d}"
            yield Finding(
                *(check, "warn", f"{count} messages from before {before} have not been deleted"),
                "They are deleted when bronze starts, and once a day while it runs, once silver "
                "has read them. Start both, or let silver catch up.",
            )
        else:
            needed = f", and {found.needed} older ones that silver needs" if found.needed else ""
            what = f"messages published since {found.since:%Y-%m-%d} are kept{needed}"
            yield Finding(check, "ok", what)


def python() -> Iterator[Finding]:
    """Whether the package supports this version of Python."""
    wanted = importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"]
    here = platform.python_version()
    if SpecifierSet(wanted).contains(here):
        yield Finding("python", "ok", here)
    else:
        yield Finding(
            "python",
            "fail",
            f"{here}, but {wanted} is needed",
            "Install a matching version of Python.",
        )


def packages() -> Iterator[Finding]:
    """Whether the installed packages have the versions that the package requires."""
    shown = []
    wrong = []
    for line in importlib.metadata.requires(DISTRIBUTION) or []:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        if not version or not wanted.specifier.contains(version, prereleases=True):
            wrong.append(f"{wanted.name} {version or 'is missing'} ({wanted.specifier} is needed)")
        elif wanted.name in SHOWN:
            shown.append(f"{wanted.name} {version}")
    if wrong:
        yield Finding(
            *("packages", "fail", "; ".join(wrong)),
            "Install the lakehouse into its own environment, with the versions in "
            "requirements.lock.",
        )
    else:
        yield Finding("packages", "ok", ", ".join(shown))


def java() -> Iterator[Finding]:
    """Whether there is a Java that Spark and the broker support."""
    try:
        program = find_java()
    except SettingsError as error:
        yield _refused("java", error)
        return
    version = java_version(program)
    if version in SUPPORTED:
        yield Finding("java", "ok", f"Java {version}: {program}")
    else:
        yield Finding(
            "java",
            "fail",
            f"{program} does not run",
            "Install Java 17, 21 or 25, and set JAVA_HOME.",
        )


def jars(settings: LakeSettings) -> Iterator[Finding]:
    """Whether the cache holds exactly the jars of the lock."""
    for group in (*jar_groups(settings), *(["pulsar"] if is_local(settings) else [])):
        locked = {jar.file_name: jar.sha256 for jar in read_lock(group)}
        folder = jar_folder(settings, group, read_lock(group))
        there = {file.name: file for file in folder.glob("*.jar")}
        wrong = [
            name
            for name, file in there.items()
            if hashlib.sha256(file.read_bytes()).hexdigest() != locked.get(name)
        ]
        missing = locked.keys() - there.keys()
        check = f"jars of {group}"
        remedy = f"Delete the folder {folder}. The jars are then fetched again."
        if wrong:
            yield Finding(
                check, "fail", f"different from jars.lock: {', '.join(sorted(wrong))}", remedy
            )
        elif missing and (folder / COMPLETE).exists():
            yield Finding(check, "fail", f"missing: {', '.join(sorted(missing))}", remedy)
        elif missing:
            yield Finding(
                *(check, "warn", f"{len(missing)} of {len(locked)} are not fetched yet"),
                "The next start fetches them, which needs network access.",
            )
        else:
            yield Finding(check, "ok", f"{len(locked)} as in jars.lock: {folder}")


def variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Whether environment variables with the prefix of settings name existing settings."""
    prefix = str(LakeSettings.model_config["env_prefix"])
    known = {f"{prefix}{name.upper()}" for name in (*LakeSettings.model_fields, *OTHERS)}
    unknown = sorted(name for name in environment if name.startswith(prefix))
    unknown = [name for name in unknown if name not in known]
    for name in unknown:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"Did you mean {near[0]}? Otherwise remove" if near else "Remove"
        yield Finding(
            *("settings", "warn", f"{name} is not a setting and has no effect"),
            f"{meant} it from the environment.",
        )
    if not unknown:
        given = sum(name in known for name in environment)
        yield Finding("settings", "ok", f"{given} in the environment, all known")


def folders(settings: LakeSettings) -> Iterator[Finding]:
    """Whether the home folder, the lake, its tables and checkpoints, and the cache are writable."""
    lake = settings.lake_dir
    within = (place for place in lake.glob("*/*") if place.is_dir())
    places = [settings.home_dir, settings.cache_dir, lake, *within]
    refused = []
    for place in places:
        try:
            tempfile.TemporaryFile(dir=_existing(place)).close()
        except OSError as error:
            refused.append(f"{place} ({error.strerror})")
    if refused:
        yield Finding(
            *("folders", "fail", f"not writable: {', '.join(refused)}"),
            "Let the user that runs the lakehouse write to them, or choose other folders with "
            "LAKEHOUSE_HOME, LAKEHOUSE_LAKE and LAKEHOUSE_CACHE.",
        )
    else:
        yield Finding("folders", "ok", f"{lake} and the other folders are writable")


def disk(settings: LakeSettings) -> Iterator[Finding]:
    """Whether the disk has enough free space for the lake to grow."""
    free = shutil.disk_usage(_existing(settings.lake_dir)).free
    found = f"{free / GIB:.1f} GiB free at {settings.lake_dir}"
    if free >= LITTLE_FREE:
        yield Finding("disk", "ok", found)
    else:
        yield Finding(
            *("disk", "fail" if free < LEAST_FREE else "warn", found),
            "Free some space, or lower LAKEHOUSE_HISTORY_DAYS (at least 7 days) to keep fewer old "
            "files.",
        )


def bucket(settings: LakeSettings) -> Iterator[Finding]:
    """Whether the bucket can be used, if the tables are in one."""
    if in_bucket(settings):
        try:
            require_bucket(settings)
        except SettingsError as error:
            yield _refused("bucket", error)
        else:
            yield Finding("bucket", "ok", f"{settings.tables} can be read")


def lake_format(settings: LakeSettings) -> Iterator[Finding]:
    """Whether this release knows the format of the lake. If not, no table is looked at."""
    try:
        found = format_of(settings)
        if found is None:
            return
        require_known(found, f"The lake in {settings.tables}")
    except FormatError as error:
        yield _refused("format", error)
    except SettingsError:
        return  # said by `bucket`
    else:
        yield Finding("format", "ok", f"{found.format}, first written by release {found.release}")


def ports(settings: LakeSettings, *, answers: bool) -> Iterator[Finding]:
    """Whether the ports that we would listen on are free, or in use by a running lakehouse."""
    serves = True
    try:
        serves = endpoint_running(settings)
    except LakehouseError as error:
        yield _refused("SQL client", error, "warn")  # gold may be built elsewhere
    wanted = []
    if _serves_sql(settings):
        wanted.append((settings.sql_port, "LAKEHOUSE_SQL_PORT", serves))
    if settings.connect_port is not None:
        wanted.append((settings.connect_port, PORT_SETTING, serves))
    if settings.console and settings.console_host in LOOPBACK:
        wanted.append((settings.console_port, "LAKEHOUSE_CONSOLE_PORT", _console_answers(settings)))
    if is_local(settings):
        urls = {"PULSAR_URL": settings.pulsar_url, "PULSAR_ADMIN_URL": settings.pulsar_admin_url}
        for name, url in urls.items():
            wanted.append((urlsplit(url).port or 0, f"LAKEHOUSE_{name}", answers))
    for port, setting, is_served in wanted:
        check = f"port {port}"
        try:
            require_free_port(port, setting)
        except SettingsError as error:
            if is_served:
                yield Finding(check, "ok", f"in use by the running lakehouse ({setting})")
            else:
                yield _refused(check, error)
        else:
            yield Finding(check, "ok", "free")


def _console_answers(settings: LakeSettings) -> bool:
    """Whether a console listens at the port of the settings. Its certificate is not checked."""
    if settings.console_tls_certificate_file:
        return True
    with contextlib.suppress(httpx.HTTPError, ValueError):
        answer = httpx.get(f"{console_url(settings)}/health", timeout=3)
        return answer.status_code == httpx.codes.UNAUTHORIZED or "pages" in answer.json()
    return False


def sql(settings: LakeSettings) -> Iterator[Finding]:
    """Whether the SQL endpoint is protected as required, and how long its certificate is valid."""
    if _serves_sql(settings):
        try:
            yield Finding("SQL endpoint", *guard_state(settings))
            if unlimited := unlimited_users(settings):
                found, remedy = unlimited
                yield Finding("SQL users", "warn", found, remedy)
        except SettingsError as error:
            yield _refused("SQL endpoint", error)


def _serves_sql(settings: LakeSettings) -> bool:
    return settings.sql_host in (*LOOPBACK, "0.0.0.0")  # noqa: S104 - compared, not bound


def _refused(check: str, error: LakehouseError, state: State = "fail") -> Finding:
    return Finding(check, state, error.what.removesuffix("."), error.remedy)


def broker(settings: LakeSettings, *, answers: bool) -> Iterator[Finding]:
    """Whether a broker of a tested version answers."""
    place = settings.pulsar_admin_url
    if not answers:
        remedy = "To use your own, set LAKEHOUSE_PULSAR_URL and LAKEHOUSE_PULSAR_ADMIN_URL"
        if is_local(settings):
            remedy = f"`lakehouse up` starts one. {remedy}"
        state: State = "warn" if is_local(settings) else "fail"
        yield Finding("broker", state, f"no healthy broker answers at {place}", f"{remedy}.")
        return
    with PulsarAdmin(settings.connection) as admin:
        version = admin.version()
    with contextlib.suppress(InvalidVersion):
        if OLDEST_BROKER <= Version(version) < NEXT_BROKER:
            yield Finding("broker", "ok", f"Pulsar {version} at {place}")
            return
    yield Finding(
        *("broker", "warn", f"Pulsar {version} at {place} is not a tested version"),
        "Use Pulsar 4 if something does not work.",
    )


def declared_topics(lake: Lake) -> Iterator[Finding]:
    """Whether the declared topics exist, and keep the messages that have not landed yet."""
    now = dt.datetime.now(dt.timezone.utc)
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in lake.topics.topics.values():
            check = f"topic {topic.name}"
            address = lake.address(topic.name)
            create = "`lakehouse create-topics` creates what is missing."
            missing = ""
            try:
                partitions = {}
                for name in address.topics(admin):
                    missing = name
                    partitions[name] = len(admin.partitions(name))
                refuse_other_address(lake, topic.name)
                found = list(risks(admin, lake, topic.name, now))
            except TopicNotFoundError:
                yield Finding(check, "fail", f"{missing} does not exist", create)
                continue
            except LakehouseError as error:  # from the broker, or the checkpoint is torn
                refused = _refused(check, error)
                yield refused._replace(remedy=refused.remedy or "Check the broker's log.")
                continue
            for risk in found:
                yield Finding(check, "fail" if risk.is_near else "warn", risk.what, risk.remedy)
            if not partitions:
                yield Finding(
                    *(check, "warn", f"the broker has no {address}"),
                    "Bronze reads such topics as soon as they exist. Check the pattern if there "
                    "should be one.",
                )
                continue
            fewest = min(partitions, key=lambda name: partitions[name])
            if partitions[fewest] < topic.partitions and not address.pattern:
                which = f"{fewest} has " if topic.has_several else ""
                few = f"{which}{partitions[fewest]} partitions, but {topic.partitions} are declared"
                yield Finding(check, "warn", few, create)
            elif not found:
                count, several = sum(partitions.values()), f"{len(partitions)} topics, "
                yield Finding(
                    *(check, "ok"),
                    f"{several if topic.has_several else ''}{count} partitions; keeps messages "
                    "that have not landed",
                )


def streams(lake: Lake, query: str, tables: list[TableSpec]) -> Iterator[Finding]:
    """Whether a stream can continue: checkpoint and tables agree, and it was not given up."""
    check = f"stream {query}"
    wrong = list(disagreements(lake, query, tables))
    for what, remedy in wrong:
        yield Finding(check, "fail", what, remedy)
    stopped = given_up(lake.settings, query)
    if stopped is not None:
        yield Finding(
            *(check, "fail", f"given up at {stopped.at:%Y-%m-%d %H:%M:%S} UTC: {stopped.reason}"),
            "Fix the cause, then start the job again.",
        )
    elif since := paused_since(lake.settings, query):
        yield Finding(
            *(check, "warn", f"paused since {since:%Y-%m-%d %H:%M:%S} UTC"),
            f"`lakehouse resume {query}` lets it continue.",
        )
    elif not wrong:
        batch = newest_batch(lake.settings, query)
        planned = "has not run yet" if batch is None else f"agrees with its tables, batch {batch}"
        yield Finding(check, "ok", planned)


def imported(state: ImportState) -> Finding:
    """Whether an import can continue."""
    if state.problem:
        remedy = "Fix the cause, then start it again."
        return Finding(state.name, "fail", state.problem, remedy)
    return Finding(state.name, "ok", state.note)


def sink(lake: Lake, state: SinkState) -> Iterator[Finding]:
    """Whether a sink can continue, and whether its database accepts all rows."""
    wrong = list(disagreements(lake, state.name, []))
    for what, remedy in wrong:
        yield Finding(f"sink {state.name}", "fail", what, remedy)
    if state.problem:
        waits = state.problem.startswith("waits")
        remedy = "Build it: `lakehouse gold`." if waits else "Fix the cause, then start it again."
        yield Finding(f"sink {state.name}", "warn" if waits else "fail", state.problem, remedy)
    elif state.refused:
        yield Finding(
            *(f"sink {state.name}", "warn", f"the database refuses {state.refused} rows"),
            "Its table lakehouse_refused holds them with the reason. Rows that fit clear them.",
        )
    elif not wrong:
        yield Finding(f"sink {state.name}", "ok", state.note)


def _existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(each for each in (folder, *folder.parents) if each.exists())
