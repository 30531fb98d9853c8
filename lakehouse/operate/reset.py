"""`lakehouse reset`: start over with an empty lake."""

import contextlib
import shutil
from pathlib import Path

from bronze.ingest import landed_topics, subscription
from gold.catalog import LAYERS, own_schemas
from gold.lock import alone
from gold.tables import published_tables
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import claim, interrupted, reader_id
from lake.tables.format import format_file
from lake.tables.lake import Lake
from lake.tables.storage import delete, delete_file, in_bucket, is_there
from lakehouse.runtime.broker import broker_answers, left_over_broker
from pulsar_spark.broker.admin import PulsarAdmin, TopicNotFoundError
from pulsar_spark.errors import SettingsError
from silver.rebuild import BESIDE

COMMAND = "lakehouse reset"


def what_goes(settings: LakeSettings) -> list[str]:
    """The existing folders and addresses that a reset deletes, to be shown to the user first."""
    return [*_layers(settings), *map(str, _folders(settings))]


def _folders(settings: LakeSettings) -> list[Path]:
    folders = [settings.lake_dir, settings.home_dir / "pulsar", settings.home_dir / "spark"]
    return [folder for folder in folders if folder.exists()]


def _layers(settings: LakeSettings) -> list[str]:
    """The layers of a lake in a bucket, which may also contain other objects."""
    if not in_bucket(settings):
        return []
    return [place for place in _places(settings) if is_there(settings, place)]


def _delete_format(settings: LakeSettings) -> None:
    """Delete the note of a bucket's format. In a folder, it goes with the lake."""
    note = format_file(settings)
    if in_bucket(settings) and is_there(settings, note):
        delete_file(settings, note)


def _places(settings: LakeSettings) -> list[str]:
    marts = {table.spec.layer for table in published_tables(Lake(settings))}
    layers = dict.fromkeys((*LAYERS, *own_schemas(settings), *sorted(marts), BESIDE))
    return [f"{settings.tables}/{layer}" for layer in layers]


def reset(lake: Lake) -> None:
    """Delete tables, checkpoints and the embedded broker's data.

    On an external broker the topics stay, but the subscriptions that kept messages for this lake,
    its savepoints and its backups are deleted.

    Raises:
        SettingsError: the embedded broker of this home folder is running.
        CheckpointError: a query of this lake is running.
        GoldError: gold is being built.
    """
    if left_over_broker(lake.settings) is not None:
        message = (
            f"The lakehouse in {lake.settings.home_dir} is running. Stop it first (Ctrl-C in its "
            "terminal)."
        )
        raise SettingsError(message)
    with alone(lake.settings):
        # An interrupted command need not be finished, because everything is deleted.
        held = [
            claim(lake.settings, path.name, interrupted(path))
            for path in lake.settings.checkpoints_dir.glob("*")
        ]
        for checkpoint in held:  # if this is killed, no stream may use what is left
            checkpoint.expect(COMMAND)
        if broker_answers(lake.settings):
            _drop_subscriptions(lake)
        # Tables go before the checkpoints, which stop streams from starting.
        for place in _places(lake.settings):
            delete(lake.settings, place)
        _delete_format(lake.settings)
        for folder in _folders(lake.settings):
            shutil.rmtree(folder)
        for checkpoint in held:
            checkpoint.release()


def _drop_subscriptions(lake: Lake) -> None:
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in lake.topics.topics.values():
            reader = reader_id(lake.settings, f"bronze.{topic.name}")
            if reader is None:
                continue
            declared = lake.address(topic.name).topics(admin)
            for name in {*declared, *landed_topics(lake.settings, topic.name)}:
                with contextlib.suppress(TopicNotFoundError):
                    for partition in admin.partitions(name):
                        for cursor in admin.state(partition).cursors:
                            if cursor.startswith(subscription(reader)):
                                admin.delete_subscription(partition, cursor)
