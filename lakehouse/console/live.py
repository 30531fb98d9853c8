"""What pages show of a sample, and what changes on open pages without loading them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from lakehouse.console.freshness import Freshness, slow_stage
from lakehouse.console.graph import STAGES, Node
from lakehouse.console.watcher import Sample

Level = Literal["ok", "warn", "bad", "idle"]
LEVELS: dict[str, Level] = {
    "running": "ok",
    "retrying": "warn",
    "given up": "bad",
    "paused": "warn",
    "stopped": "idle",
    "unknown": "idle",
}
TITLES = {
    "topic": "Topics",
    "bronze": "Bronze",
    "silver": "Silver",
    "gold": "Gold",
    "sink": "Sinks",
}
NONE = "-"
REDRAW_SECONDS = 10  # how often charts of a running lake are drawn again


@dataclass(frozen=True)
class State:
    """A state in one or two words, and its level."""

    level: Level
    text: str


@dataclass(frozen=True)
class NodeView:
    """A node of the flow map. `reads` are the names of the nodes that it is made from."""

    name: str
    label: str
    stage: str
    href: str
    state: State
    rows: str
    rate: str
    lag: str
    reads: list[str]


@dataclass(frozen=True)
class StageView:
    """A column of the flow map."""

    name: str
    title: str
    summary: str
    nodes: list[NodeView]


@dataclass(frozen=True)
class Tile:
    """A number in the head of a page, what it means, and the page that says more."""

    name: str
    value: str
    state: State
    href: str


@dataclass(frozen=True)
class Changes:
    """What an open page needs to know.

    texts: by key. states: by key, level and text. sections: by the name of a part of the lake, a
    digest that changes when pages about it must be loaded again.
    """

    texts: dict[str, str] = field(default_factory=dict)
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)

    def since(self, before: Changes) -> dict[str, Any]:
        """What is different from before, as JSON."""
        pairs = (
            ("v", self.texts, before.texts),
            ("s", self.states, before.states),
            ("d", self.sections, before.sections),
        )
        return {
            name: {key: value for key, value in new.items() if old.get(key) != value}
            for name, new, old in pairs
        }


def flow(sample: Sample) -> list[StageView]:
    """The columns of the flow map."""
    nodes = [_view(sample, node) for node in sample.graph.nodes.values()]
    found = []
    for stage in STAGES:
        own = [node for node in nodes if node.stage == stage]
        if own or stage != "sink":
            found.append(StageView(stage, TITLES[stage], _summary(sample, stage, own), own))
    return found


def changes(sample: Sample, freshness: Freshness) -> Changes:
    """All values of a sample that pages show."""
    texts: dict[str, str] = {}
    states: dict[str, tuple[str, str]] = {}
    for stage in flow(sample):
        texts[f"summary|{stage.name}"] = stage.summary
        for node in stage.nodes:
            texts[f"{node.name}|rows"] = node.rows
            texts[f"{node.name}|rate"] = node.rate
            texts[f"{node.name}|lag"] = node.lag
            states[f"{node.name}|state"] = node.state.level, node.state.text
    for name, stream in sample.streams.items():
        states[f"{name}|stream"] = LEVELS[stream.state], stream.state
        texts[f"{name}|batch"] = NONE if stream.batch is None else f"{stream.batch:,}"
    for tile in tiles(sample, freshness):
        texts[f"tile|{tile.name}"] = tile.value
        states[f"tile|{tile.name}"] = tile.state.level, tile.state.text
    return Changes(texts, states, sections(sample))


def tiles(sample: Sample, freshness: Freshness) -> list[Tile]:
    """The numbers in the head of the flow page."""
    bad = [each for each in sample.streams.values() if LEVELS[each.state] in ("bad", "warn")]
    working = sum(each.state == "running" for each in sample.streams.values())
    wrong = State("ok" if working else "idle", "no errors" if working else "none running")
    if bad:
        is_bad = any(LEVELS[each.state] == "bad" for each in bad)
        wrong = State("bad" if is_bad else "warn", _listed(bad))
    rate = sum(r for n, r in sample.rates.items() if n.startswith("bronze."))
    lag = sum(sample.lags.values())
    summaries = freshness.summaries()
    slow = slow_stage(summaries)
    delays = [each.delay for each in summaries if each.delay is not None]
    refused = sum(sample.quarantined.values())
    late = State("ok", "every stage is up to date")
    if slow is not None:
        late = State("warn", f"{slow.stage} is the slowest stage")
    decide = State("warn", "to decide on") if refused else State("ok", "nothing refused")
    broker = {
        None: State("idle", "asking the broker"),
        True: State("ok", "the broker answers"),
        False: State("bad", "no broker answers"),
    }[sample.broker]
    return [
        Tile("Streams running", f"{working} of {len(sample.streams)}", wrong, "/streams"),
        Tile("Landing now", _rate(rate), State("ok" if rate else "idle", "rows per second"), ""),
        Tile("Waiting in topics", f"{lag:,}" if sample.broker else NONE, broker, ""),
        Tile("Greatest delay", duration(max(delays)) if delays else NONE, late, "/freshness"),
        Tile("In quarantine", f"{refused:,}", decide, "/quarantine"),
    ]


def sections(sample: Sample) -> dict[str, str]:
    """A digest for each part of the lake that pages show as a whole."""
    tables = sample.tables
    versions = {name: each.version for name, each in tables.items()}
    streams = [(x.name, x.state, x.since, x.errors) for x in sample.streams.values()]
    return {
        "flow": _digest([*sample.graph.nodes], sorted(sample.graph.edges)),
        "streams": _digest(streams, sample.problem),
        "quarantine": _digest(versions.get("silver.quarantine")),
        "gold": _digest(versions.get("gold.cuts"), versions.get("gold.runs")),
        "tables": _digest(sorted(tables)),
        "time": _digest(int(sample.at // REDRAW_SECONDS)),
    }


def table_href(name: str) -> str:
    """The address of the page of a table."""
    return f"/tables/{quote(name, safe='')}"


def duration(seconds: float) -> str:
    """A duration for people, roughly."""
    if seconds < 1:
        return "0 s"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(count: int, one: str, many: str = "") -> str:
    """A number of things."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def size_of(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def _view(sample: Sample, node: Node) -> NodeView:
    table = sample.tables.get(node.name)
    reads = [source.name for source in sample.graph.sources(node.name)]
    rows = NONE if table is None else f"{table.rows:,}"
    rate, lag = "", ""
    if node.stage == "topic":
        landed = sample.tables.get(f"bronze.{node.topic}")
        waiting = sample.lags.get(node.topic)
        rows = NONE if waiting is None else f"{(landed.rows if landed else 0) + waiting:,}"
    elif node.stage == "bronze":
        waiting = sample.lags.get(node.topic)
        lag = NONE if waiting is None else f"{waiting:,}"
    elif node.stage == "silver" and node.topic:
        waiting = sample.unrefined.get(node.topic)
        lag = NONE if waiting is None else f"{waiting:,}"
    if node.stage in ("bronze", "silver"):
        rate = _rate(sample.rates.get(node.name, 0.0))
    href = table_href(node.name)
    if node.stage == "topic":
        href = table_href(f"bronze.{node.topic}")
    elif node.stage == "sink":
        href = f"/streams#{quote(node.name)}"
    return NodeView(
        node.name, node.label, node.stage, href, _state(sample, node), rows, rate, lag, reads
    )


def _state(sample: Sample, node: Node) -> State:
    if node.stage == "topic":
        known: dict[bool | None, State] = {
            None: State("idle", "unknown"),
            False: State("bad", "no broker"),
            True: State("ok", "reachable"),
        }
        if sample.broker and node.topic not in sample.lags:
            return State("bad", "missing")
        return known[sample.broker]
    if node.stage == "gold":
        if sample.gold_at is None:
            return State("idle", "not published")
        behind = sample.gold_behind
        return State("warn", f"{behind} behind") if behind else State("ok", "up to date")
    stream = sample.streams.get(node.stream)
    if stream is None:
        return State("idle", "unknown")
    if node.name not in sample.tables and node.stage != "sink":
        return State("idle" if LEVELS[stream.state] == "ok" else LEVELS[stream.state], "no table")
    return State(LEVELS[stream.state], stream.state)


def _summary(sample: Sample, stage: str, nodes: Sequence[NodeView]) -> str:
    if stage == "topic":
        if sample.broker is False:
            return "No broker answers."
        waiting = sum(sample.lags.values())
        return (
            f"{counted(waiting, 'message')} to read" if waiting else f"{len(nodes)} read to the end"
        )
    if stage == "gold":
        if sample.gold_at is None:
            return "Not published yet"
        behind = sample.gold_behind
        return (
            f"{counted(behind, 'batch', 'batches')} behind silver"
            if behind
            else "Up to date with silver"
        )
    if stage == "sink":
        return counted(len(nodes), "sink")
    if stage == "silver":
        left = sum(sample.unrefined.values())
        return f"{counted(left, 'message')} to process" if left else "Up to date with bronze"
    rate = sum(sample.rates.get(node.name, 0.0) for node in nodes)
    return f"{_rate(rate)} rows/s"


def _rate(rate: float) -> str:
    if rate == 0:
        return "0"
    return f"{rate:,.1f}" if rate < 10 else f"{rate:,.0f}"


def _listed(streams: Sequence[Any]) -> str:
    first = streams[0]
    rest = f" and {len(streams) - 1} more" if len(streams) > 1 else ""
    return f"{first.name} {first.state}{rest}"


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]
