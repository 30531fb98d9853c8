"""Tests that single streams pause and continue, while the others run."""

import threading
from pathlib import Path

from deltalake import DeltaTable
from live_shop import kept, until
from pyspark.sql import SparkSession
from structlog.testing import capture_logs
from topic import LiveTopic, Outgoing, events

from bronze.ingest import ingest
from lake.observe.health import HEALTH
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.checkpoint import claim
from lake.streams.job import await_streams
from lake.streams.pause import PAUSED, is_paused, pause, paused_since, resume
from lake.tables.lake import Lake
from lake.topics.topic_file import TopicFile
from lakehouse.operate import doctor
from lakehouse.operate.status import lake_status
from lakehouse.runtime.broker import Broker
from lakehouse.runtime.ports import free_port
from pulsar_spark.errors import CheckpointError

QUERY = "bronze.one"


def test_a_note_is_kept_until_it_is_deleted_even_if_it_is_torn(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    assert not is_paused(settings, QUERY)
    assert not resume(settings, QUERY)
    pause(settings, QUERY)  # before the stream has ever run
    since = paused_since(settings, QUERY)
    assert since is not None
    pause(settings, QUERY)
    assert paused_since(settings, QUERY) == since
    (Path(settings.checkpoint_path(QUERY)) / PAUSED).write_bytes(b"\0\0")
    assert is_paused(settings, QUERY)
    assert paused_since(settings, QUERY) is not None
    [finding] = doctor.streams(Lake(settings), QUERY, [])
    assert (finding.state, finding.remedy) == (
        "warn",
        "`lakehouse resume bronze.one` lets it continue.",
    )
    assert finding.found.startswith("paused since 20")
    assert resume(settings, QUERY)
    assert paused_since(settings, QUERY) is None


def test_a_paused_stream_reads_nothing_and_then_continues_exactly_once(
    spark: SparkSession, broker: Broker, settings: LakeSettings
) -> None:
    settings = settings.model_copy(update={"metrics_port": free_port()})  # the state is for probes
    one, two = (LiveTopic(settings, name, 1) for name in ("one", "two"))
    lake = Lake(settings, TopicFile(topics={**one.topics.topics, **events("two").topics}))

    def send(payload: bytes) -> None:
        for topic in (one, two):
            topic.send([Outgoing(payload)])

    def landed(name: str) -> list[bytes]:
        path = Path(settings.table_path("bronze", name))
        found = DeltaTable(path).to_pyarrow_table() if (path / "_delta_log").exists() else None
        return sorted(found["payload"].to_pylist()) if found else []

    def is_released() -> bool:
        try:
            claim(settings, QUERY).release()
        except CheckpointError:
            return False
        return True

    send(b"1")
    HEALTH.need(["streams"])
    with kept(ingest(spark, lake)):
        until(lambda: landed("one") == landed("two") == [b"1"], "the first messages")
        assert not is_released()
        pause(settings, QUERY)
        until(is_released, "the pause")
        send(b"2")
        until(lambda: landed("two") == [b"1", b"2"], "the message of the other stream")
        assert landed("one") == [b"1"]
        until(lambda: HEALTH.unready() == [], "both streams to have begun")
        notes = {line.table: line.note for line in lake_status(lake)}
        assert notes["bronze.one"].startswith("paused since 20")
        assert notes["bronze.two"] == ""
        resume(settings, QUERY)
        until(lambda: landed("one") == [b"1", b"2"], "the message after the pause")
        pause(settings, QUERY)
        until(is_released, "the second pause")
    send(b"3")
    with capture_logs() as logs:
        await_streams(ingest(spark, lake, available_now=True))  # the pause outlives the process
    assert [x["stream"] for x in logs if x["event"] == "stream paused"] == [QUERY]
    assert landed("one") == [b"1", b"2"]
    assert landed("two") == [b"1", b"2", b"3"]

    running, stop = ingest(spark, lake), threading.Event()
    thread = threading.Thread(target=running[0].keep, args=[stop])
    thread.start()
    stop.set()
    thread.join(60)
    assert not thread.is_alive(), "a paused stream does not end"
    running[1].stop()
    resume(settings, QUERY)
    await_streams(ingest(spark, lake, available_now=True))
    assert landed("one") == [b"1", b"2", b"3"]
