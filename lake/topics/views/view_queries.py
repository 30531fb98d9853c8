"""Reads the queries of the views that have a key: which tables and views each of them reads."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from lake.kept.query import Unkept, inlined, name_of, occurrences
from lake.topics.topic import View


@dataclass(frozen=True)
class ViewQuery:
    """The query of a view with a key.

    view: the view.
    sql: its query, in which views without a key are replaced by their queries.
    reads: the tables and the views with a key that `sql` reads.
    """

    view: View
    sql: str
    reads: tuple[str, ...]


def view_queries(
    views: Mapping[str, View], tables: Collection[str], if_read: Collection[str] = ()
) -> list[ViewQuery]:
    """The queries of the views with a key, each after those of the views that it reads.

    Args:
        views: all views, by name.
        tables: the tables that a view with a key may read: changelogs and `enriched_<events>`.
        if_read: the names of the views that are left out unless another view with a key reads them.

    Raises:
        ValueError: a view with a key reads something else, or reads itself through other views, or
            its query cannot be read. The message names the view.
    """
    return _Reader(views, tables, if_read).queries()


class _Reader:
    def __init__(
        self, views: Mapping[str, View], tables: Collection[str], if_read: Collection[str]
    ) -> None:
        self._views, self._if_read = views, if_read
        self._known = {name.lower(): name for name in (*tables, *views)}
        self._tables = tables

    def queries(self) -> list[ViewQuery]:
        reads: dict[str, list[str]] = {}
        first = (view for name, view in self._views.items() if name not in self._if_read)
        todo = [(view, view) for view in first if view.key]
        while todo:
            view, reader = todo.pop(0)
            if view.name not in reads:
                reads[view.name] = self._reads(view, reader)
                read = [self._views[name] for name in reads[view.name] if name in self._views]
                todo += [(each, view if view.key else reader) for each in read]
        found: dict[str, ViewQuery] = {}
        for name in self._in_order(reads):
            found[name] = self._query(self._views[name], reads[name], found)
        return [query for query in found.values() if query.view.key]

    def _reads(self, view: View, reader: View) -> list[str]:
        """What a view reads. `reader` is the view with a key for which it is read."""
        is_own = view is reader
        try:
            names = list(dict.fromkeys(map(name_of, occurrences(view.sql))))
        except Unkept as error:
            if is_own and view.sources:
                return [*view.sources]
            remedy = (
                "name its tables in 'sources'" if is_own else f"remove 'key' of '{reader.name}'"
            )
            read = "" if is_own else f", which the view '{reader.name}' reads,"
            message = (
                f"view '{view.name}'{read} has a query whose tables are not known, because "
                f"{error.reason.rstrip('.')}; correct it, or {remedy}"
            )
            raise ValueError(message) from error
        for name in names:
            if name not in self._known:
                through = "" if is_own else f" through the view '{view.name}'"
                allowed = ", ".join(self._known.values())
                message = (
                    f"view '{reader.name}' has a key and reads '{name}'{through}, which silver "
                    f"does not follow; such a view can read {allowed}"
                )
                raise ValueError(message)
        return [self._known[name] for name in names]

    def _in_order(self, reads: Mapping[str, list[str]]) -> list[str]:
        """The views, each after those that it reads."""
        graph = {name: [each for each in reads[name] if each in self._views] for name in reads}
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            cycle = error.args[1][::-1]
            message = (
                f"view '{cycle[0]}' reads itself ({' reads '.join(cycle)}), so there is no view to "
                "compute first; remove one of these references"
            )
            raise ValueError(message) from error

    def _query(self, view: View, reads: list[str], found: Mapping[str, ViewQuery]) -> ViewQuery:
        plain = {name: found[name] for name in reads if name in found and not found[name].view.key}
        sql = view.sql
        if plain:
            try:
                sql = inlined(sql, {name.lower(): query.sql for name, query in plain.items()})
            except Unkept as error:
                message = f"view '{view.name}' cannot be read: {error.reason}; rename one of them"
                raise ValueError(message) from error
        below = [plain[name].reads if name in plain else (name,) for name in reads]
        return ViewQuery(view, sql, tuple(dict.fromkeys(sum(below, ()))))
