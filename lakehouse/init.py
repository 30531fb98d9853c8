"""`lakehouse init`: makes a project, from an example that is shipped with the lakehouse.

A project is a folder with `lakehouse.toml`, which names a topic file and a dbt project. All
commands work in such a folder. An example without a topic file or a dbt project gets the shop's.
"""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from gold.dbt.project import FILE as DBT_FILE
from gold.dbt.project import PROFILES, DbtProject
from gold.dbt.sources import write_sources
from lake.settings.settings import SHOP_DBT, SHOP_TOPICS, LakeSettings, load_settings
from lake.topics.topic import Topic, snake_case
from lake.topics.topic_file import TopicFile, load_topics
from lakehouse.application import load_application
from lakehouse.messages.draft import draft
from lakehouse.runtime.address import console_url
from pulsar_spark.errors import LakehouseError, SettingsError

SETTINGS = "lakehouse.toml"
TOPICS = "topics.toml"
SAMPLE = "sample"
DBT = "dbt"
START = "start"  # the example of a project without a domain of its own
SCALE, SEED = 0.02, 1  # of generated samples
LEFT_BY_RUNS = (".lakehouse", "target", "logs", "dbt_packages", "__pycache__")
_HERE = Path(__file__).resolve()


def examples() -> dict[str, Path]:
    """The folders of the shipped examples, by name."""
    places = [_HERE.parent / "examples", _HERE.parents[1] / "examples"]  # wheel, checkout
    folder = next(place for place in places if place.is_dir())
    return {each.name: each for each in sorted(folder.iterdir()) if (each / SETTINGS).is_file()}


def init(
    folder: Path,
    *,
    example: str = START,
    dbt: Path | None = None,
    broker: LakeSettings | None = None,
) -> list[Path]:
    """Make a project. If this is interrupted, the folder is as it was.

    Args:
        folder: the folder to make. Its name becomes that of the dbt project.
        example: the example that is copied, one of `examples`.
        dbt: an existing dbt project, which is used instead of the example's and not changed.
        broker: settings of a broker whose topics the project declares, instead of the example's.

    Returns:
        The files that were written, relative to the folder.

    Raises:
        BrokerError: the broker does not answer.
        SettingsError: the folder is not empty, there is no such example, `dbt` holds no dbt
            project, or the broker has no topics.
    """
    known = examples()
    if example not in known:
        message = f"There is no example '{example}'. The examples are {', '.join(known)}."
        raise SettingsError(message)
    folder = folder.expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        message = f"{folder} is a file, so no project can be made there. Choose another name."
        raise SettingsError(message)
    if folder.is_dir() and any(folder.iterdir()):
        message = (
            f"{folder} is not empty, and `lakehouse init` overwrites nothing. Choose another name, "
            "or an empty folder."
        )
        raise SettingsError(message)
    if dbt is not None and not (dbt.expanduser() / DBT_FILE).is_file():
        message = f"{dbt} holds no dbt project, because it has no {DBT_FILE}. Correct --dbt."
        raise SettingsError(message)
    drafted = draft(broker) if broker else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as place:
        made = Path(place) / folder.name
        left_out = (*LEFT_BY_RUNS, *([DBT] if dbt else []))
        shutil.copytree(known[example], made, ignore=shutil.ignore_patterns(*left_out))
        if broker and drafted:
            _use_broker(made, broker, drafted)
        elif not (made / TOPICS).exists():
            shutil.copy(SHOP_TOPICS, made / TOPICS)
        topics = load_topics(made / TOPICS)
        if application := load_application(topics):
            application.generate(made / SAMPLE, SCALE, SEED)
        if dbt is None:
            _finish_dbt(made, folder.name, topics)
        else:
            _use_dbt(made / SETTINGS, dbt.expanduser().absolute())
        files = sorted(file.relative_to(made) for file in made.rglob("*") if file.is_file())
        made.replace(folder)
    return files


def console_of(project: Path) -> str:
    """The address that the console of a new project will have, if nothing takes the port before."""
    before = Path.cwd()
    os.chdir(project.expanduser())  # where the settings of the project are
    try:
        return console_url(load_settings())
    except LakehouseError:  # a setting of the environment is wrong, which `up` will say
        return "printed at the start"
    finally:
        os.chdir(before)


def _use_broker(project: Path, broker: LakeSettings, drafted: str) -> None:
    """Declare the topics of a broker, with a staging model for each, instead of the example's."""
    (project / TOPICS).write_text(drafted, encoding="utf-8")
    (project / "README.md").unlink()
    shutil.rmtree(project / SAMPLE)
    dbt = project / DBT
    if dbt.exists():
        for each in ("models", "tests"):
            shutil.rmtree(dbt / each)
        staging = dbt / "models" / "staging"
        staging.mkdir(parents=True)
        for topic in load_topics(project / TOPICS).topics.values():
            model = staging / f"stg_{snake_case(topic.name)}.sql"
            model.write_text(_staging(topic), encoding="utf-8")
    with (project / SETTINGS).open("a", encoding="utf-8") as settings:
        for name in ("pulsar_url", "pulsar_admin_url", "pulsar_namespace"):
            settings.write(f"{name} = {json.dumps(getattr(broker, name))}\n")


def _staging(topic: Topic) -> str:
    """A model with the fields of a topic."""
    is_state = topic.kind == "changelog"
    table = f"{topic.name}_state" if is_state else f"enriched_{topic.name}"
    columns = ",\n    ".join(map(snake_case, topic.fields))
    where = "\nwhere not is_deleted" if is_state else ""
    return (
        f"{{{{ config(unique_key={topic.key_columns}) }}}}\n\n"
        f"select\n    {columns}\nfrom {{{{ source('silver', '{table}') }}}}{where}\n"
    )


def _finish_dbt(project: Path, name: str, topics: TopicFile) -> None:
    """Name the dbt project, and add what it shares with all others: the profile and the sources."""
    dbt = DbtProject(project / DBT)
    if dbt.folder.exists():
        shutil.copy(SHOP_DBT / PROFILES, dbt.folder)
        write_sources(dbt, topics)
    else:
        shutil.copytree(SHOP_DBT, dbt.folder, ignore=shutil.ignore_patterns(*LEFT_BY_RUNS))
    file = dbt.folder / DBT_FILE
    text = file.read_text(encoding="utf-8")
    [old] = re.findall(r"^name: (\w+)$", text, re.MULTILINE)
    new = dbt_name(name)
    text = re.sub(rf"^name: {old}$", f"name: {new}", text, flags=re.MULTILINE)
    text = re.sub(rf"^  {old}:$", f"  {new}:", text, flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")


def dbt_name(name: str) -> str:
    """A name as dbt allows it: letters, digits and underscores, and no digit in front."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII).lower()
    return plain if plain[0].isalpha() or plain[0] == "_" else f"_{plain}"


def _use_dbt(settings: Path, dbt: Path) -> None:
    escaped = str(dbt).replace("\\", "\\\\").replace('"', '\\"')
    text = settings.read_text(encoding="utf-8")
    settings.write_text(
        re.sub(r"^dbt_project = .*$", lambda _: f'dbt_project = "{escaped}"', text, flags=re.M),
        encoding="utf-8",
    )
