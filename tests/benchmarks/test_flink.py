"""Tests the parts of the Flink benchmark that need neither Flink nor Spark."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import orc

from benchmarks.flink.commits import DeltaLog, PaimonLog, Tracker
from benchmarks.flink.systems import HERE
from lake.settings.settings import SHOP_TOPICS
from lake.topics.topic_file import load_topics
from lakehouse.runtime.jars import read_lock

USER = pa.struct([("id", pa.int64())])
TIME = pa.timestamp("us", "UTC")


def rows(*orders: tuple[int, float, int | None], **more: list[int]) -> pa.Table:
    """Return rows with order number, publish time and user id, plus Paimon's own columns."""
    return pa.table(
        {
            "invoice_id": pa.array([n for n, _, _ in orders], pa.int64()),
            "line_item_id": pa.array([1 for _ in orders], pa.int64()),
            "publish_time": pa.array([int(at * 1e6) for _, at, _ in orders], TIME),
            "user": pa.array([user and {"id": user} for _, _, user in orders], USER),
            **more,
        }
    )


def committed(file: Path, at: float) -> None:
    os.utime(file, (at, at))


@pytest.mark.parametrize("topic", ["users", "items", "orders"])
def test_the_job_reads_all_fields_of_the_topics(topic: str) -> None:
    job = (HERE / "job.sql").read_text()
    [table] = re.findall(rf"CREATE TEMPORARY TABLE {topic} \((.*?)\n\) WITH", job, re.DOTALL)
    columns = re.findall(r"^  (\w+) [A-Z]+", table, re.MULTILINE)
    own = ["publish_time", "arrival", "PRIMARY"]
    fields = load_topics(SHOP_TOPICS).topics[topic].fields
    assert [name for name in columns if name not in own] == list(fields)
    assert f"'topics' = 'persistent://${{namespace}}/{topic}'" in job


def test_the_jar_lock_pins_one_flink_version() -> None:
    jars = {jar.artifact: jar for jar in read_lock("flink", HERE / "jars.lock")}
    assert jars["flink-runtime"].version == "1.18.1"
    assert jars["flink-connector-pulsar"].version.endswith("-1.18")
    assert "paimon-flink-1.18" in jars
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in jars.values())


def test_an_order_is_complete_once_its_user_is_committed(tmp_path: Path) -> None:
    log, tracker = DeltaLog(tmp_path), Tracker(3)
    write_deltalake(tmp_path, rows((0, 10.5, 7), (1, 11.0, None)))
    write_deltalake(tmp_path, rows((1, 11.0, 8)), mode="append")
    DeltaTable(tmp_path).optimize.compact()
    for version, at in enumerate((20.0, 30.0, 40.0)):
        committed(tmp_path / "_delta_log" / f"{version:020d}.json", at)
    tracker.follow(log)
    assert log.version == 2
    assert tracker.published[:2].tolist() == [10.5, 11.0]
    assert tracker.arrived[:2].tolist() == [20.0, 20.0]
    assert tracker.completed[:2].tolist() == [20.0, 30.0]
    assert not tracker.arrived[2] > 0
    with pytest.raises(TimeoutError, match="all there. 2 orders can be read, 2 with"):
        tracker.wait(log, lambda: False, 0, "all there")


def test_paimons_last_row_of_each_key_wins(tmp_path: Path) -> None:
    log, tracker = PaimonLog(tmp_path), Tracker(3)
    first = rows((0, 10.0, None), (1, 11.0, 7), _SEQUENCE_NUMBER=[1, 2], _VALUE_KIND=[0, 0])
    later = rows((0, 10.0, 8), (1, 11.0, 7), _SEQUENCE_NUMBER=[4, 5], _VALUE_KIND=[0, 3])
    snapshot(tmp_path, 1, first, at=20.0)
    snapshot(tmp_path, 2, later, at=30.0)
    tracker.follow(log)
    assert tracker.arrived[:2].tolist() == [20.0, 20.0]
    assert tracker.completed[:2].tolist() == [30.0, 20.0]
    assert log.live().select(["invoice_id", "user"]).to_pylist() == [
        {"invoice_id": 0, "user": {"id": 8}}
    ]


def snapshot(table: Path, number: int, added: pa.Table, at: float) -> None:
    """Write a snapshot with one bucket as Paimon does, with only the parts that are read."""
    for folder in ("snapshot", "manifest", "bucket-0"):
        (table / folder).mkdir(exist_ok=True)
    kinds = added["_VALUE_KIND"].cast(pa.int8())
    place = added.schema.get_field_index("_VALUE_KIND")
    orc.write_table(added.set_column(place, "_VALUE_KIND", kinds), table / "bucket-0" / f"{number}")
    content: dict[str, Any] = {"commitKind": "APPEND"}
    files = {"baseManifestList": range(1, number), "deltaManifestList": [number]}
    for name, numbers in files.items():
        entries = [{"_KIND": 0, "_BUCKET": 0, "_FILE": {"_FILE_NAME": f"{n}"}} for n in numbers]
        write_orc(table / "manifest" / f"{name}-{number}-entries", entries)
        manifests = [{"_FILE_NAME": f"{name}-{number}-entries"}] if entries else []
        write_orc(table / "manifest" / f"{name}-{number}", manifests)
        content[name] = f"{name}-{number}"
    file = table / "snapshot" / f"snapshot-{number}"
    file.write_text(json.dumps(content))
    (table / "snapshot" / "LATEST").write_text(str(number))
    committed(file, at)


def write_orc(file: Path, content: list[dict[str, Any]]) -> None:
    empty = pa.table({"_FILE_NAME": pa.array([], pa.string())})
    orc.write_table(pa.Table.from_pylist(content) if content else empty, file)
