"""How tables are made from each other: from the topics to the marts and the sinks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gold.dbt.manifest import Manifest
from gold.tables import CUT_OF, GOLD
from lake.tables.lake import Lake
from lake.topics.sink_source import source_of
from silver.contract.tables import enriched_table, history_table, state_table

STAGES = ("topic", "bronze", "silver", "gold", "sink")


@dataclass(frozen=True)
class Node:
    """A topic, a table or a sink.

    name: `topic.orders`, the full name of the table, or `publish.<sink>` and `export.<sink>`.
    stage: one of `STAGES`.
    stream: the stream that writes it; empty for topics and for gold.
    topic: the declared topic that it is made from, if there is one.
    """

    name: str
    stage: str
    stream: str = ""
    topic: str = ""

    @property
    def label(self) -> str:
        """The name within its stage."""
        if self.stage == "sink":
            return self.name
        layer, _, rest = self.name.partition(".")
        return rest if layer in STAGES else self.name


@dataclass(frozen=True)
class Graph:
    """Nodes in the order of their stages, and which node is read by which."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: set[tuple[str, str]] = field(default_factory=set)

    @cached_property
    def _sources(self) -> dict[str, list[str]]:
        """The names of the nodes that each node reads. Used only when the graph is complete."""
        found: dict[str, list[str]] = {}
        for source, target in self.edges:
            found.setdefault(target, []).append(source)
        return found

    def sources(self, name: str) -> list[Node]:
        """The nodes that a node reads."""
        return self._named(self._sources.get(name, ()))

    def readers(self, name: str) -> list[Node]:
        """The nodes that read a node."""
        return self._named(target for source, target in self.edges if source == name)

    def _named(self, names: Iterable[str]) -> list[Node]:
        return [self.nodes[name] for name in sorted(names) if name in self.nodes]


def flow_graph(lake: Lake, manifest: Manifest, published: Iterable[str]) -> Graph:
    """The graph of a lake.

    Args:
        lake: the lake.
        manifest: what dbt knows of the models.
        published: the full names of the tables that readers of gold see.
    """
    graph = Graph()
    topics = lake.topics
    for name in topics.topics:
        _add(graph, Node(f"topic.{name}", "topic", topic=name))
    for name in topics.topics:
        node = Node(f"bronze.{name}", "bronze", f"bronze.{name}", name)
        _add(graph, node, f"topic.{name}")
    for topic in topics.changelogs():
        table = state_table(topic).full_name
        _add(graph, Node(table, "silver", "silver", topic.name), f"bronze.{topic.name}")
        if topic.history:
            history = history_table(topic).full_name
            _add(graph, Node(history, "silver", "silver", topic.name), f"bronze.{topic.name}")
    for topic in topics.events():
        looked_up = (
            (history_table if lookup.mode == "as_of" else state_table)(topics.topics[lookup.topic])
            for lookup in topic.lookups.values()
        )
        table = enriched_table(topic, topics).full_name
        sources = [f"bronze.{topic.name}", *(each.full_name for each in looked_up)]
        _add(graph, Node(table, "silver", "silver", topic.name), *sources)
    states = {topic.name: state_table(topic).full_name for topic in topics.changelogs()}
    for query in topics.view_queries:
        reads = (states.get(name, f"silver.{name}") for name in query.reads)
        _add(graph, Node(f"silver.{query.view.name}", "silver", "silver"), *reads)
    _add_gold(graph, manifest, published)
    _add_sinks(graph, lake)
    return graph


def _add(graph: Graph, node: Node, *sources: str) -> None:
    graph.nodes[node.name] = node
    graph.edges.update((source, node.name) for source in sources)


def _add_gold(graph: Graph, manifest: Manifest, published: Iterable[str]) -> None:
    """The published tables. What a model reads is followed through models that are no marts."""
    known = {full_name(node): node for node in manifest.models}
    nodes = {node["unique_id"]: node for node in manifest.models}
    sources = {source["unique_id"]: source for source in manifest.sources}
    for table in sorted(published):
        node = known.get(table)
        reads = set(_reads(node, nodes, sources, {*published}, set())) if node else set()
        _add(graph, Node(table, "gold"), *sorted(reads))


def _reads(
    node: dict[str, Any],
    nodes: dict[str, dict[str, Any]],
    sources: dict[str, dict[str, Any]],
    published: set[str],
    seen: set[str],
) -> Iterable[str]:
    for each in node.get("depends_on", {}).get("nodes", []):
        if each in seen:
            continue
        seen.add(each)
        if each in sources:
            schema = str(sources[each].get("schema", ""))
            layer = "silver" if schema.startswith(CUT_OF) else schema
            yield f"{layer}.{sources[each].get('identifier') or sources[each]['name']}"
        elif each in nodes and full_name(nodes[each]) in published:
            yield full_name(nodes[each])
        elif each in nodes:
            yield from _reads(nodes[each], nodes, sources, published, seen)


def full_name(node: dict[str, Any]) -> str:
    """The name under which readers see the table of a model."""
    schema = node.get("config", {}).get("schema") or GOLD
    return f"{schema}.{node.get('alias') or node['name']}"


def _add_sinks(graph: Graph, lake: Lake) -> None:
    for kind, sinks in (("publish", lake.topics.publish), ("export", lake.topics.export)):
        for sink in sinks.values():
            name = f"{kind}.{sink.name}"
            _add(graph, Node(name, "sink", name), source_of(lake.topics, sink).full_name)
