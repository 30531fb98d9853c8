"""Says how each kept model is kept, or why it is computed whole (`lakehouse gold explain`)."""

import json
from collections.abc import Iterator
from typing import Any

from gold.dbt.manifest import Manifest
from gold.dbt.process import run_dbt
from gold.errors import GoldError
from gold.kept.build_after import pause_of
from gold.sql_client import SqlError, query_endpoint
from gold.tables import BUILT, CUT
from lake.kept.planner import Plan, Term, make_plan
from lake.kept.query import Unkept, read_query
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.spec import type_text


def explain(settings: LakeSettings, model: str | None = None) -> Iterator[str]:
    """Explain a model of the dbt project, or all that are kept.

    Args:
        settings: the lake, whose SQL endpoint says which columns the tables have.
        model: the name of the model.

    Yields:
        A paragraph for each model, in the order of their names.

    Raises:
        GoldError: dbt cannot compile the models, there is no such model, or it is not kept.
    """
    target = settings.home_dir / "dbt-explain"
    code, log = run_dbt(settings, target, ["compile"], BUILT)
    if code:
        message = f"dbt could not compile the models. See {log}."
        raise GoldError(message)
    manifest = Manifest(target)
    found = _kept(manifest)
    if model is not None and model not in found:
        message = (
            f"There is no kept model '{model}'. The kept models are {', '.join(sorted(found))}."
        )
        raise GoldError(message)
    columns = _Columns(settings)
    for name in [model] if model else sorted(found):
        yield _explained(found[name], manifest.nodes, columns)


def explain_built(lake: Lake, manifest: Manifest, model: str) -> str:
    """Explain a kept model as it was built last, without dbt and the endpoint.

    Args:
        lake: the lake, whose tables say which columns they have.
        manifest: what dbt wrote with the last build.
        model: the name of the model.

    Raises:
        GoldError: there is no such model, or it has not been built yet.
    """
    node = _kept(manifest).get(model)
    if node is None:
        message = f"There is no kept model '{model}'."
        raise GoldError(message)
    if not node.get("compiled_code"):
        message = f"{model} has not been built yet."
        raise GoldError(message, "Run `lakehouse gold --available-now`.")
    return _explained(node, manifest.nodes, _ColumnsOfTables(lake))


def _kept(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """The models that are kept, by name."""
    models = manifest.models
    return {node["name"]: node for node in models if node["config"]["materialized"] == "kept"}


class _ColumnsOfTables:
    """The columns of tables, as the logs of the tables say."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def of(self, relation: str) -> dict[str, str]:
        schema, _, name = relation.replace("`", "").partition(".")
        table = self._lake.named("silver" if schema == CUT else schema, name)
        if not table.exists():
            message = f"{relation} does not exist yet. Run `lakehouse gold` first."
            raise GoldError(message)
        fields = json.loads(table.log().schema().to_json())["fields"]
        return {field["name"]: type_text(field["type"]) for field in fields}


class _Columns:
    """The columns of tables, as the endpoint describes them."""

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings
        self._known: dict[str, dict[str, str]] = {}

    def of(self, relation: str) -> dict[str, str]:
        if relation not in self._known:
            try:
                _, rows = query_endpoint(self._settings, f"DESCRIBE TABLE {relation}")
            except SqlError as error:
                message = f"{relation} cannot be described ({error}). Run `lakehouse gold` first."
                raise GoldError(message) from error
            self._known[relation] = {name: kind for name, kind, *_ in rows}
        return self._known[relation]


def _explained(
    node: dict[str, Any],
    nodes: dict[str, dict[str, Any]],
    columns: _Columns | _ColumnsOfTables,
) -> str:
    name, sql = node["name"], node["compiled_code"].strip()
    pause = pause_of(node)
    waits = [f"  It waits {pause.total_seconds() / 60:g} minutes after each time."] if pause else []
    key = node["config"]["unique_key"]
    reads = [nodes[each]["relation_name"] for each in node["depends_on"]["nodes"]]
    try:
        relations = {relation: columns.of(relation) for relation in reads}
        plan = make_plan(read_query(sql, relations), [key] if isinstance(key, str) else key)
    except Unkept as error:
        whole = f"{name} is computed whole: {error}."
        return "\n".join([whole, *_shown(sql, error.line), *waits])
    kept = f"{name} is kept by {', '.join(plan.scope)}."
    return "\n".join([kept, *map(_term, _terms(plan)), *waits])


def _terms(plan: Plan) -> list[Term]:
    return list({(t.table, t.line, t.through): t for t in plan.terms}.values())


def _term(term: Term) -> str:
    place = f"  {term.table}" + (f" (line {term.line})" if term.line else "")
    if not term.through:
        return f"{place}: the keys of the changed rows"
    through = ", then ".join(name or "the query" for name in term.through)
    return f"{place}: looked up in {through}"


def _shown(sql: str, line: int | None) -> list[str]:
    if line is None:
        return []
    return [f"  line {line} of the compiled SQL: {sql.splitlines()[line - 1].strip()}"]
