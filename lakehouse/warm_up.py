"""`lakehouse warm-up`: trains the ahead-of-time caches of Spark and the broker.

A demo on a small generated shop runs in a process of its own, on a lake of its own, because it does
what `lakehouse up` does: it starts the broker, streams, merges, serves SQL and builds gold. Each
Java writes its cache when it stops.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from lake.durable import move_durably
from lake.settings.environment import plain_environment
from lake.settings.settings import LakeSettings, load_settings
from lake.tables.lake import Lake
from lakehouse.demo import demo
from lakehouse.runtime import aot
from lakehouse.runtime.broker import broker_cache, is_local
from lakehouse.runtime.ports import free_port
from lakehouse.runtime.session import spark_cache
from pulsar_spark.errors import LakehouseError

SCALE = 0.05
# What decides which cache fits, or what a process needs to start. All else is the default.
PASSED_ON = ("cache", "driver_memory", "java_options", "ivy_settings")
TRIED, TRAINING = "tried", "training-"


class WarmUpError(LakehouseError):
    """The caches could not be made."""


def warm_up(settings: LakeSettings) -> list[Path]:
    """Train the caches for the Java, jars and flags of these settings.

    Returns:
        The new caches.

    Raises:
        WarmUpError: Java has no such caches, another process is training, or the training failed.
    """
    wanted = wanted_caches(settings)
    if not wanted:
        message = "The Java in use has no ahead-of-time caches."
        remedy = "Unset JAVA_HOME to use the Java that comes with the lakehouse."
        raise WarmUpError(message, remedy)
    folder = aot.cache_folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "training.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        message = "Another process is training the caches already."
        raise WarmUpError(message, "Wait until it is done.") from None
    try:
        aot.delete_unused(settings)
        for left in folder.glob(f"{TRAINING}*"):  # by a training that was killed
            shutil.rmtree(left, ignore_errors=True)
        for file in wanted:
            file.with_suffix(f".{TRIED}").touch()
        with tempfile.TemporaryDirectory(dir=folder, prefix=TRAINING) as place:
            _run_training(settings, Path(place))
            made = [file for file in wanted if (Path(place) / file.name).exists()]
            for file in made:
                move_durably(Path(place) / file.name, file)
    finally:
        lock.release()
    if made != wanted:
        missing = ", ".join(file.name for file in wanted if file not in made)
        message = f"Java wrote no cache {missing} in {folder}."
        raise WarmUpError(message, "Check the free space there, and run `lakehouse warm-up` again.")
    return made


def warm_up_later(settings: LakeSettings) -> None:
    """Start the training in the background, unless it was tried before or is not wanted.

    Called by `lakehouse demo` and `lakehouse up` when they have ended. It runs at the lowest
    priority, and never fails: the next start is then no faster.
    """
    with suppress(OSError, LakehouseError):
        if not settings.warm_up or not is_local(settings):  # or it would fetch a broker
            return
        wanted = wanted_caches(settings)
        if all(file.with_suffix(f".{TRIED}").exists() for file in wanted):
            return
        log = settings.home_dir / "logs" / "warm-up.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output:
            subprocess.Popen(
                ["nice", "-n", "19", *_command("--train", settings)],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C ends the shell's command, but not the training
            )


def wanted_caches(settings: LakeSettings) -> list[Path]:
    """The caches of Spark and the broker; none if the Java has no such caches."""
    found = spark_cache(settings), broker_cache(settings)
    return [file for file in found if file is not None]


def _run_training(settings: LakeSettings, folder: Path) -> None:
    ended = subprocess.run(
        _command("--demo", settings, str(folder)),
        cwd=folder,  # not where a lakehouse.toml may be
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,  # both are read until Java has written the cache and ended, too
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode:
        lines = [line for line in ended.stdout.splitlines() if line.strip()]
        message = f"The training failed: {lines[-1] if lines else 'it printed nothing'}"
        raise WarmUpError(message, "The lakehouse works without the caches.")


def _environment() -> dict[str, str]:
    """The environment without secrets, and without settings, which are passed as an argument."""
    known = plain_environment()
    return {name: known[name] for name in known if not name.startswith("LAKEHOUSE_")}


def _command(what: str, settings: LakeSettings, *more: str) -> list[str]:
    given = {name: getattr(settings, name) for name in PASSED_ON}
    given = {name: str(value) for name, value in given.items() if value is not None}
    return [sys.executable, "-m", "lakehouse.warm_up", what, json.dumps(given), *more]


def _train_by_demo(settings: LakeSettings, folder: Path) -> None:
    aot.train_into(folder)
    own = {
        "home": folder / "home",
        "pulsar_url": f"pulsar://127.0.0.1:{free_port()}",
        "pulsar_admin_url": f"http://127.0.0.1:{free_port()}",
        "sql_port": free_port(),
    }
    demo(Lake(settings.model_copy(update=own)), scale=SCALE)


def _main(what: str, given: str, *more: str) -> None:
    settings = load_settings(**json.loads(given))
    if what == "--train":
        warm_up(settings)
    else:
        _train_by_demo(settings, Path(*more))


if __name__ == "__main__":
    _main(*sys.argv[1:])
