"""`lakehouse reset`: start over with an empty lake."""

import contextlib
import shutil
from pathlib import Path

from bronze.ingest import subscription
from gold.catalog import LAYERS, own_schemas
from gold.lock import alone
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import checkpoint_id, claim, interrupted
from lake.tables.storage import delete, in_bucket, is_there
from lake.topics.topic_file import TopicFile
from lakehouse.runtime.broker import broker_answers, left_over_broker
from pulsar_spark.broker.admin import PulsarAdmin, TopicNotFoundError
from pulsar_spark.errors import SettingsError
from silver.rebuild import BESIDE

COMMAND = "lakehouse reset"


def what_goes(settings: LakeSettings) -> list[str]:
    """What a reset deletes: the lake, and the embedded broker's messages."""
    return [*_layers(settings), *map(str, _folders(settings))]


def _folders(settings: LakeSettings) -> list[Path]:
    folders = [settings.lake_dir, settings.home_dir / "pulsar", settings.home_dir / "spark"]
    return [folder for folder in folders if folder.exists()]


def _layers(settings: LakeSettings) -> list[str]:
    """Of a lake in a bucket, where there may be other things beside."""
    if not in_bucket(settings):
        return []
    return [place for place in _places(settings) if is_there(settings, place)]


def _places(settings: LakeSettings) -> list[str]:
    layers = (*LAYERS, *own_schemas(settings), BESIDE)
    return [f"{settings.tables}/{layer}" for layer in layers]


def reset(settings: LakeSettings, topics: TopicFile) -> None:
    """Delete tables, checkpoints and the embedded broker's data.

    On a broker that runs elsewhere the topics stay, and the subscriptions that kept messages for
    this lake go.

    Raises:
        SettingsError: the embedded broker of this home runs.
        CheckpointError: a query of this lake runs.
        GoldError: gold is being built.
    """
    if left_over_broker(settings) is not None:
        message = f"The lakehouse of {settings.home_dir} is running; stop it first (Ctrl-C there)."
        raise SettingsError(message)
    with alone(settings):
        # What was interrupted need not be finished, as all of it goes.
        held = [
            claim(settings, path.name, interrupted(path))
            for path in settings.checkpoints_dir.glob("*")
        ]
        for checkpoint in held:  # so that no stream goes on with what is left if this is killed
            checkpoint.expect(COMMAND)
        if broker_answers(settings):
            _drop_subscriptions(settings, topics)
        for place in _places(settings):  # before the checkpoints, which keep streams from starting
            delete(settings, place)
        for folder in _folders(settings):
            shutil.rmtree(folder)
        for checkpoint in held:
            checkpoint.release()


def _drop_subscriptions(settings: LakeSettings, topics: TopicFile) -> None:
    with PulsarAdmin(settings.connection) as admin:
        for topic in topics.topics.values():
            checkpoint = checkpoint_id(settings, f"bronze.{topic.name}")
            if checkpoint is not None:
                with contextlib.suppress(TopicNotFoundError):
                    for partition in admin.partitions(settings.full_topic(topic.name)):
                        admin.delete_subscription(partition, subscription(checkpoint))
