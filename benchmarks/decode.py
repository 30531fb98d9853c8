"""Measures how fast silver decodes nested payloads, beside flat payloads with the same values.

    python -m benchmarks.decode [--messages 400000] [--rounds 7] [--shape flat --shape paths]

All shapes hold the same twenty values, and payloads of all shapes have the same number of bytes.

`flat`: members of one object. `paths`: fields with a path, in objects within objects. `struct`: the
same objects, as fields with the type struct. `array`: a field with the type array<struct<...>>,
with four elements of five values.

The shapes take turns, so that a slow minute of the machine affects all alike. The ratios are those
of the medians, to `flat`. Messages are read from a cache, so only decoding is measured.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.settings.settings import load_settings
from lake.topics.topic_file import load_topics
from lakehouse.runtime.session import build_session
from lakehouse.runtime.terminal import print_rows
from pulsar_spark.schema import ENVELOPE
from silver.records.decode import Decoder

KINDS = ("string", "double", "long", "decimal(12,2)", "timestamp_ms")  # of each group of values
GROUPS = ("device", "geo", "radio", "power")
HEAD = '[topics.t]\nkind = "events"\nkey = ["id"]\n[topics.t.fields]\nid = "long"\n'

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def values(group: str) -> dict[str, str]:
    """The members of a group, by name, as SQL with the message's number `id`."""
    return {
        f"{group}Name": f"concat('{group} ', id % 1000)",
        f"{group}Level": "cast(id % 9973 as double) / 7",
        f"{group}Count": "id * 31",
        f"{group}Price": "cast((id % 100000) / 100 as decimal(12,2))",
        f"{group}At": "1700000000000 + id",
    }


def declared(shape: str) -> str:
    """The fields of a shape, as a topic file declares them."""
    kinds = {group: dict(zip(values(group), KINDS, strict=True)) for group in GROUPS}
    if shape == "flat":
        found = {name: kind for each in kinds.values() for name, kind in each.items()}
        return "\n".join(f'{name} = "{kind}"' for name, kind in found.items())
    if shape == "paths":
        lines = []
        for group, members in kinds.items():
            for name, kind in members.items():
                path = name if group == GROUPS[0] else f"{GROUPS[0]}.{group}.{name}"
                path = f"{GROUPS[0]}.{name}" if group == GROUPS[0] else path
                lines.append(f'{name} = {{ type = "{kind}", path = "{path}" }}')
        return "\n".join(lines)
    if shape == "struct":
        return "\n".join(
            f'{group} = "struct<{", ".join(f"{name}: {kind}" for name, kind in each.items())}>"'
            for group, each in kinds.items()
        )
    inner = ", ".join(f"{name}: {kind}" for name, kind in kinds[GROUPS[0]].items())
    return f'groups = "array<struct<{inner}>>"'


def payload(shape: str) -> str:
    """The payload of a shape, as SQL that makes a struct."""
    parts = {
        group: ", ".join(f"'{name}', {sql}" for name, sql in values(group).items())
        for group in GROUPS
    }
    inner = {group: f"named_struct({members})" for group, members in parts.items()}
    if shape == "flat":
        return f"named_struct('id', id, {', '.join(parts.values())})"
    if shape == "struct":
        groups = ", ".join(f"'{group}', {inner[group]}" for group in GROUPS)
        return f"named_struct('id', id, {groups})"
    if shape == "paths":
        rest = ", ".join(f"'{group}', {inner[group]}" for group in GROUPS[1:])
        return f"named_struct('id', id, 'device', named_struct({parts[GROUPS[0]]}, {rest}))"
    same = ", ".join([inner[GROUPS[0]]] * len(GROUPS))
    return f"named_struct('id', id, 'groups', array({same}))"


def messages(spark: SparkSession, shape: str, count: int, size: int) -> DataFrame:
    """Messages in a cache, whose payloads are filled with blanks up to a number of bytes."""
    text = f"to_json({payload(shape)})"
    padded = f"concat('{{', space({size} - octet_length({text})), substring({text}, 2))"
    given: dict[str, Any] = {
        "payload": F.expr(padded).cast("binary"),
        "partition": F.lit(0),
        "ledger": F.lit(1),
        "entry": F.col("id"),
        "batch_index": F.lit(0),
        "publish_time": F.current_timestamp(),
    }
    columns = [given.get(c.name, F.lit(None)).cast(c.type).alias(c.name) for c in ENVELOPE]
    rows = spark.range(0, count, 1, 4).select(*columns).persist()
    rows.count()
    sizes = rows.agg(F.min(F.length("payload")), F.max(F.length("payload"))).collect()[0]
    assert set(sizes) == {size}, sizes
    return rows


def seconds(decoder: Decoder, rows: DataFrame) -> float:
    """The time in which all rows are decoded."""
    begun = time.monotonic()
    decoder.rows(rows).write.format("noop").mode("overwrite").save()
    return time.monotonic() - begun


@app.command()
def main(
    count: Annotated[int, typer.Option("--messages", help="Messages of each shape.")] = 400_000,
    rounds: Annotated[int, typer.Option(help="Measured rounds, after two others.")] = 7,
    size: Annotated[int, typer.Option(help="Bytes of each payload.")] = 700,
    shape: Annotated[list[str] | None, typer.Option(help="Measure only these shapes.")] = None,
) -> None:
    """Decode the same values in each shape, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        spark = build_session(load_settings(home=Path(folder)), "benchmark")
        ready = {}
        for each in shape or ("flat", "paths", "struct", "array"):
            file = Path(folder) / f"{each}.toml"
            file.write_text(HEAD + declared(each))
            decoder = Decoder(load_topics(file).topics["t"])
            ready[each] = decoder, messages(spark, each, count, size)
            bad = decoder.rows(ready[each][1]).where("_reason IS NOT NULL").limit(1).collect()
            assert not bad, json.dumps(bad[0].asDict(), default=str)
        taken: dict[str, list[float]] = {each: [] for each in ready}
        for number in range(rounds + 2):
            for each, (decoder, rows) in ready.items():
                found = seconds(decoder, rows)
                if number >= 2:  # Java has compiled the code
                    taken[each].append(found)
        medians = {each: statistics.median(found) for each, found in taken.items()}
        base = next(iter(medians.values()))
        rows_ = [
            (each, f"{count / m:,.0f}", f"{m:.2f}", f"{m / base:.2f}")
            for each, m in medians.items()
        ]
        print_rows(("shape", "messages/s", "seconds", "ratio"), rows_)
        spark.stop()


if __name__ == "__main__":
    app()
