"""The late events of a topic as a query: which events they are, and when they form a table.

An event is late if its event time is before the watermark by more than the lateness. The watermark
is the latest event time of the messages that were published before it, where no event time counts
as later than its publish time. `silver/audit/lateness.py` counts the same events in a batch.

The list is a view, unless a sink or a view with a key reads it. Then it is a view with a key, which
silver keeps as a table (`silver/materialized.py`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from lake.quoting import identifier
from lake.topics.durations import micros
from lake.topics.topic import LATE_BY, WATERMARK, Topic, View, snake_case, sql_type
from pulsar_spark.schema import POSITION

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
PUBLISHED = "publish_time"


@dataclass(frozen=True)
class LateEvents:
    """The late events of a topic with a `lateness`."""

    topic: Topic

    @property
    def name(self) -> str:
        """The name of the view or table in silver."""
        return f"late_{self.topic.name}"

    @property
    def read(self) -> str:
        """The table that the query reads."""
        return f"enriched_{self.topic.name}"

    @property
    def deciding(self) -> list[str]:
        """The columns of that table which decide which events are late."""
        return list(dict.fromkeys([*self._shown, PUBLISHED, "position"]))

    @property
    def view(self) -> View:
        """The view with a key, which a table is made of."""
        kinds = {snake_case(name): sql_type(spec) for name, spec in self.topic.fields.items()}
        shown = {name: kinds[name] for name in self._shown}
        added = {WATERMARK: "timestamp", LATE_BY: "bigint", PUBLISHED: "timestamp"}
        # Not checked, because a topic file cannot declare the type of the position.
        return View.model_construct(
            name=self.name,
            description=f"Late events of {self.topic.name}. Grain: one late event",
            key=self.topic.key_columns,
            columns={**shown, **added, "position": POSITION},
            sql=self.sql(),
        )

    @property
    def _shown(self) -> list[str]:
        at = snake_case(str(self.topic.event_time))
        return list(dict.fromkeys([*self.topic.key_columns, at]))

    def sql(self, since: dt.datetime | None = None) -> str:
        """The query over the topic's enriched events.

        It first finds the watermark at the begin of each hour. The events of an hour are then
        judged independently of other hours.

        Args:
            since: if given, only events that were published at this instant or later are judged.
                Of the others, only the watermark is needed.
        """
        at = identifier(snake_case(str(self.topic.event_time)))
        shown = ", ".join(map(identifier, self._shown))
        earlier = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
        in_order = f"PARTITION BY _hour ORDER BY publish_time, position {earlier}"
        judged, begin = "", "_before"
        if since is not None:
            judged = f" AND {published_since(since)}"
            begin = (
                f"_before, (SELECT max(least({at}, publish_time)) "  # noqa: S608 - topic.py checks names
                f"FROM `{self.read}` WHERE {at} IS NOT NULL AND NOT {published_since(since)})"
            )
        return f"""
WITH events AS (
    SELECT {shown}, publish_time, position, date_trunc('HOUR', publish_time) AS _hour,
        least({at}, publish_time) AS _moved
    FROM `{self.read}` WHERE {at} IS NOT NULL{judged}
),
hours AS (
    SELECT _hour AS _begin, max(max(_moved)) OVER (ORDER BY _hour {earlier}) AS _before
    FROM events GROUP BY _hour
),
judged AS (
    SELECT events.*, greatest({begin}, max(_moved) OVER ({in_order})) AS {WATERMARK}
    FROM events JOIN hours ON _hour = _begin
)
SELECT {shown}, {WATERMARK}, (unix_micros({WATERMARK}) - unix_micros({at})) DIV 1000 AS {LATE_BY},
    publish_time, position
FROM judged WHERE unix_micros({WATERMARK}) - unix_micros({at}) > {micros(self.topic.lateness)}
"""  # noqa: S608 - topic.py checks names


def published_since(instant: dt.datetime) -> str:
    """The condition, in Spark's SQL, that a row was published at an instant or later."""
    return f"{PUBLISHED} >= timestamp_micros({micros(instant - EPOCH)})"
