"""Keeps the tables of models up to date, by statements of SQL and, for few rows, delta-rs."""

import contextlib
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any

import pyarrow as pa

from gold.kept.build_after import UNCHANGED, WAITS
from gold.kept.constraints import PREFIX, is_same
from gold.kept.table import WRONG, Difference, KeptTable, RefusedRows, WrongKey
from lake.kept.planner import Plan, make_plan
from lake.kept.query import Query, Unkept, read_query, refuse
from lake.kept.statements import (
    KEYS,
    difference_sql,
    kept_rows_sql,
    keys_sql,
    merge_sql,
    overwrite_sql,
    restricted_sql,
    texts_sql,
    twice_sql,
    values_sql,
    with_keys,
    wrong_sql,
)
from lake.quoting import identifier, literal

FEED = "delta.enableChangeDataFeed"
SHOWN = 3
# Views of the rows of a model that is computed whole, and of those that differ.
ROWS, DIFFERENCE = "_rows", "_difference"
MOST_KEYS = 10_000
MOST_ROWS = 20_000
LOCATION = 4  # its place among the columns of DESCRIBE DETAIL


class KeptError(Exception):
    """A model whose configuration does not allow it to be kept. The message says what to do."""


class Keeper:
    """Keeps the models of one run of dbt. Its threads share one object.

    Args:
        query: runs a statement in the session of the current thread, and returns its rows.
        tell: called with the reason if a model is computed whole.
    """

    def __init__(
        self, query: Callable[[str], list[Any]], tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.query = query
        self._tell = tell
        self._lock = Lock()
        self._changed: dict[str, bool] = {}  # by relation, of the models built in this run
        self._whole: set[str] = set()
        self._columns: dict[str, dict[str, str]] = {}
        self._constraints: dict[str, dict[str, str]] = {}
        self._places: dict[str, str] = {}
        self._feeds: dict[str, bool] = {}

    def note_whole(self, relation: str, model: Mapping[str, Any]) -> None:
        """Note that a table was created or replaced, and so has no feed since it was published.

        Args:
            relation: the table.
            model: the node of the model in dbt's graph.

        Raises:
            KeptError: the rows of the table cannot be compared, or its unique key is NULL or comes
                twice.
        """
        with self._lock:
            self._whole.add(relation)
        for name, kind in self.columns_of(relation).items():
            if "map<" in kind or "variant" in kind:
                message = (
                    f"{relation} cannot be kept, because its column {name} is a {kind}, of which "
                    "two values cannot be compared. Return an array, such as map_entries(...), or "
                    "use materialized='table'."
                )
                raise KeptError(message)
        _Update(self, relation, _unique_key(model), "").require_key()

    def keep(
        self,
        relation: str,
        model: Mapping[str, Any],
        sql: str,
        sources: Mapping[str, Mapping[str, Any]],
        build: str,
        until: dt.datetime | None = None,
    ) -> str:
        """Bring the table of a model up to date.

        Args:
            relation: the table.
            model: the node of the model in dbt's graph.
            sql: its compiled SQL.
            sources: what it reads, as `kept_sources` of `kept.sql` describes it.
            build: the id that marks the commits of this build.
            until: until when the model waits (`build_after`) unless a table that it reads is built
                from scratch; None if it does not wait.

        Returns:
            What was done, as dbt shows it.

        Raises:
            KeptError: the unique key is NULL or comes twice, or the model is `strict` and
                would be computed whole.
        """
        key = _unique_key(model)
        sources = {name.lower(): source for name, source in sources.items()}
        changed = [name for name, source in sources.items() if self._has_changed(name, source)]
        if not changed:
            self._note(relation, changed=False)
            return UNCHANGED
        if until is not None and not self._whole.intersection(sources):
            self._note(relation, changed=False)
            return f"{WAITS} (until {until:%Y-%m-%d %H:%M:%S} UTC)"
        try:
            query, plan = self._plan(sql, key, sources)
            read = [name for name in changed if name in plan.tables]
            feeds = {name: self._feed(name, sources[name]) for name in read}
            reason = None
        except Unkept as error:
            reason = str(error) if error.line is None else f"{error} (line {error.line})"
            is_rebuilt = any(name in self._whole for name in changed)  # a model was redefined
            if model["config"]["meta"].get("strict") and not is_rebuilt:
                message = f"{relation} is strict, and would be computed whole: {reason}."
                raise KeptError(message) from error
            self._tell(f"{relation} is computed whole: {reason}")
        if reason is None and not feeds:
            self._note(relation, changed=False)
            return UNCHANGED
        done = _Update(self, relation, key, build)
        if reason is not None:
            count = done.whole(sql)
        else:
            count = done.kept(query, plan, keys_sql(query, plan, feeds))
        self._note(relation, changed=count != 0)
        if count == 0 and reason is None:
            return UNCHANGED
        return f"{'WHOLE' if reason else 'KEPT'} ({'many' if count is None else count} rows)"

    def constrain(self, relation: str, wanted: Mapping[str, str]) -> None:
        """Replace the constraints of a table.

        Called if the tests of the models have changed since the table was published. Spark checks
        the existing rows, and fails if one violates a new constraint.

        Args:
            relation: the table.
            wanted: the SQL of the constraints, by name.
        """
        there = self._constraints_of(relation)
        for name in there:
            if not is_same(there[name], wanted.get(name)):
                self.query(f"alter table {relation} drop constraint {identifier(name)}")
        for name, sql in wanted.items():
            if not is_same(there.get(name), sql):
                self.query(
                    f"alter table {relation} add constraint {identifier(name)} check ({sql})"
                )
        self._constraints[relation] = dict(wanted)

    def enforces(self, relation: str, name: str, sql: str) -> bool:
        """Whether a table has a constraint. Not called before the table is built."""
        return is_same(self._constraints_of(relation).get(name), sql)

    def _constraints_of(self, relation: str) -> dict[str, str]:
        if relation not in self._constraints:
            properties = self.query(f"show tblproperties {relation}")
            self._constraints[relation] = {
                name[len(PREFIX) :]: sql for name, sql in properties if name.startswith(PREFIX)
            }
        return self._constraints[relation]

    def are_unchanged(self, relations: list[str]) -> bool:
        """Whether there are relations, and all are models that this run found unchanged."""
        return bool(relations) and not any(self._changed.get(n, True) for n in relations)

    def _plan(
        self, sql: str, key: list[str], sources: Mapping[str, Mapping[str, Any]]
    ) -> tuple[Query, Plan]:
        query = read_query(sql, {name: self.columns_of(name) for name in sources})
        return query, make_plan(query, key)

    def _has_changed(self, name: str, source: Mapping[str, Any]) -> bool:
        if source["begin"] is None:
            return True
        if source["end"] is not None:
            return bool(source["begin"] != source["end"])
        if source["begin"] != source["published"]:  # since the model was last computed
            return True
        return name in self._whole or self._changed.get(name, True)

    def _feed(self, name: str, source: Mapping[str, Any]) -> str:
        """The SQL of the rows that have changed in a table."""
        if source["begin"] is None or name in self._whole or not self._has_feed(source["table"]):
            refuse(f"{name} has no change feed since gold was last published")
        versions = [source["begin"] + 1]
        if source["end"] is not None:
            versions.append(source["end"])
        # By name, Spark 4.2 would return the table itself instead of its changes in a query that
        # reads both (SPARK-58330).
        place = literal(self.place(source["table"]))
        between = ", ".join(map(str, versions))
        columns = source["columns"]
        return f"select {columns} from table_changes_by_path({place}, {between})"

    def has_other_columns(self, relation: str, sql: str, reads: Iterable[str]) -> bool:
        """Whether a query returns other columns or types than its table has.

        Only the rebuild of a model that it reads can be the reason, so it is not asked otherwise.
        """
        if not self._whole.intersection(name.lower() for name in reads):
            return False
        returned = {row[0].lower(): row[1] for row in self.query(f"describe query {sql}")}
        return returned != {name.lower(): k for name, k in self.columns_of(relation).items()}

    def columns_of(self, relation: str) -> dict[str, str]:
        """The columns of a table or view, with their Spark types."""
        if relation not in self._columns:
            found: dict[str, str] = {}
            for name, kind, *_ in self.query(f"describe table {relation}"):
                if not name or name.startswith("#"):
                    break
                found[name] = kind
            self._columns[relation] = found
        return self._columns[relation]

    def place(self, table: str) -> str:
        """The URI of a Delta table."""
        if table not in self._places:
            self._places[table] = self.query(f"describe detail {table}")[0][LOCATION]
        return self._places[table]

    def _has_feed(self, table: str) -> bool:
        """Whether Delta records the changes of a table."""
        if table not in self._feeds:
            rows = self.query(f"show tblproperties {table} ('{FEED}')")
            self._feeds[table] = [row[1] for row in rows] == ["true"]
        return self._feeds[table]

    def _note(self, relation: str, *, changed: bool) -> None:
        with self._lock:
            self._changed[relation] = changed


class _Update:
    """The update of one table. Its methods return the number of rows written; None if many."""

    def __init__(self, keeper: Keeper, relation: str, key: list[str], build: str) -> None:
        self._keeper = keeper
        self._relation = relation
        self._build = build
        self._columns = keeper.columns_of(relation)
        self._names = {name.lower(): name for name in self._columns}
        self._key = [self._names.get(name.lower(), name) for name in key]
        self._place = keeper.place(relation)
        self._table = self._opened()

    def kept(self, query: Query, plan: Plan, keys: str) -> int | None:
        """Compute the rows again of which the scope is among some keys."""
        if self._table is not None:
            scope = self._scope(plan)
            kinds = {f"k{number}": self._columns[n] for number, n in enumerate(scope)}
            found = self._few(keys, kinds, MOST_KEYS)
            if found is not None:
                return self._by_keys(self._table, query, plan, found) if found else 0
        with self._cached(KEYS, keys) as view:
            if self._are_most(view, plan):
                return self.whole(query.text)
            return self._compare(
                with_keys(f"select * from {view}", restricted_sql(query.text, plan)),
                with_keys(f"select * from {view}", kept_rows_sql(self._relation, plan)),
                others=not set(self._scope(plan)) <= set(self._key),
            )

    def whole(self, sql: str) -> int | None:
        """Compute all rows, and write those that differ, or all if most do."""
        if self._table is not None and self._table.was_overwritten:  # most will differ again
            self._overwrite(sql)
            self._table = self._opened()
            self.require_key()
            return None
        with self._cached(ROWS, sql) as view:
            new, old = (f"select * from {name}" for name in (view, self._relation))
            return self._compare(new, old, overwrite=new)

    def require_key(self) -> None:
        """Check the unique key of all rows.

        Raises:
            KeptError: it is NULL or comes twice.
        """
        if self._table is None or not self._table.has_good_key():
            twice = twice_sql(self._relation, self._key, list(self._columns))
            self._refuse_wrong(self._keeper.query(f"{twice} limit {SHOWN}"))

    def _opened(self) -> KeptTable | None:
        return KeptTable.open(self._place, self._columns, self._key)

    def _are_most(self, keys: str, plan: Plan) -> bool:
        """Whether it is cheaper to compute all rows: most of the table's scopes are affected.

        Args:
            keys: the view of the affected ones.
            plan: the plan.
        """
        scope = ", ".join(map(identifier, self._scope(plan)))
        known = f"select approx_count_distinct(struct({scope})) from {self._relation}"
        [[affected, all_]] = self._keeper.query(f"select count(*), ({known}) from {keys}")
        return bool(2 * affected > all_)

    @contextlib.contextmanager
    def _cached(self, name: str, sql: str) -> Iterator[str]:
        """A view of the rows of a query, which is run only once."""
        view = f"{name}_{self._relation.replace('.', '_')}"
        self._keeper.query(f"cache table {view} as\n{sql}")
        try:
            yield view
        finally:
            self._keeper.query(f"drop view if exists {view}")

    def _overwrite(self, sql: str) -> None:
        self._keeper.query(overwrite_sql(self._relation, sql, list(self._columns)))

    def _by_keys(self, table: KeptTable, query: Query, plan: Plan, found: list[Any]) -> int | None:
        scope = self._scope(plan)
        kinds = [self._columns[name] for name in scope]
        keys = values_sql(found, kinds)
        restricted = with_keys(keys, restricted_sql(query.text, plan))
        new = self._few(restricted, self._columns, MOST_ROWS)
        if new is not None:
            with contextlib.suppress(pa.ArrowInvalid, RefusedRows):
                values = table.read(scope, found)
                rows = table.read(list(self._columns), new)
                try:
                    difference = table.difference(scope, values, rows)
                except WrongKey as error:
                    shown = [dict(zip(self._columns, row, strict=True)) for row in error.rows]
                    raise KeptError(self._wrong(str(error), shown)) from error
                if difference.count:
                    table.write(difference, self._build)
                return difference.count
        return self._compare(
            restricted,
            with_keys(keys, kept_rows_sql(self._relation, plan)),
            others=not set(scope) <= set(self._key),
        )

    def _scope(self, plan: Plan) -> list[str]:
        """The columns of the scope, written as in the table."""
        return [self._names[name.lower()] for name in plan.scope]

    def _few(self, sql: str, columns: Mapping[str, str], most: int) -> list[Any] | None:
        """The rows of a query, as text; None if they are more than some number."""
        found = self._keeper.query(f"select {texts_sql(columns)} from ({sql}) limit {most + 1}")
        return found if len(found) <= most else None

    def _compare(
        self, new: str, old: str, overwrite: str | None = None, *, others: bool = False
    ) -> int | None:
        """Let Spark compare some rows with what they should be, and write those that differ.

        Args:
            new: SQL of the rows that the table should hold.
            old: SQL of the rows that they replace.
            overwrite: SQL of all rows, if many may be replaced by these.
            others: whether rows that are not replaced may have the key of a new row.
        """
        difference = difference_sql(new, old, self._key, list(self._columns))
        with self._cached(DIFFERENCE, difference) as view:
            return self._apply(f"select * from {view}", overwrite, others=others)

    def _apply(self, difference: str, overwrite: str | None, *, others: bool) -> int | None:
        columns, table = list(self._columns), self._relation if others else None
        wrong = wrong_sql(difference, table, self._key, columns)
        if self._table is not None and not others:
            found = self._few(difference, {"_change": "string", **self._columns}, MOST_ROWS)
            if found is not None:
                self._refuse_wrong([row for row in found if row[0] in WRONG])
                # Spark writes what delta-rs cannot, and names the constraint that refuses a row.
                with contextlib.suppress(pa.ArrowInvalid, RefusedRows):
                    return self._write(self._table, found)
        self._refuse_wrong(self._keeper.query(f"select * from ({wrong}) limit {SHOWN}"))
        if overwrite is not None:
            self._overwrite(overwrite)
        else:
            self._keeper.query(merge_sql(self._relation, difference, self._key, columns))
        return None

    def _write(self, table: KeptTable, found: list[Any]) -> int:
        columns = list(self._columns)
        kept = [row for row in found if row[0] != "delete"]
        gone = [row for row in found if row[0] == "delete"]
        difference = Difference(
            table.read(columns, [row[1:] for row in kept]),
            [table.key_of(row) for row in table.read(columns, [row[1:] for row in gone])],
            all(row[0] == "insert" for row in kept),
        )
        if difference.count:
            table.write(difference, self._build)
        return difference.count

    def _refuse_wrong(self, rows: list[Any]) -> None:
        if rows:
            shown = [dict(zip(self._columns, row[1:], strict=True)) for row in rows[:SHOWN]]
            raise KeptError(self._wrong(WRONG[rows[0][0]], shown))

    def _wrong(self, what: str, rows: list[dict[str, Any]]) -> str:
        shown = "; ".join(map(str, rows))
        return f"The unique_key ({', '.join(self._key)}) of {self._relation} {what}: {shown}."


def _unique_key(model: Mapping[str, Any]) -> list[str]:
    key = model["config"].get("unique_key")
    if not key:
        message = f"The model {model['name']} is kept, and so needs a unique_key."
        raise KeptError(message)
    return [key] if isinstance(key, str) else list(key)
