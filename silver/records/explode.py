"""Makes a row of each element of an array in a message (`explode` in the topic file).

A message is accepted or rejected as a whole. A rejected message, and one without elements, keep a
single row, which is no row of a table: its column `ELEMENT` is NULL. The audit therefore still sees
each message.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lake.topics.nested import shown
from lake.topics.topic import ELEMENTS, Explode, Topic, snake_case, sql_type
from silver.contract.columns import ELEMENT, REASON
from silver.contract.tables import own_columns

_OF = "_of"


class Exploded:
    """Makes the rows of one topic. Its columns are built only once."""

    def __init__(self, topic: Topic, explode: Explode) -> None:
        self._own = [column.name for column in own_columns(topic)]
        self._reason = F.coalesce(REASON, _broken(topic, shown(explode.path)))
        index = topic.fields[explode.index]
        self._columns = {snake_case(explode.index): F.col(ELEMENT).cast(sql_type(index))}
        for name in topic.element_fields:
            self._columns[snake_case(name)] = _value(topic, name, F.col(_OF))

    def rows(self, messages: DataFrame) -> DataFrame:
        """The rows of decoded messages, with the column `ELEMENT`: the number of the element.

        Args:
            messages: one row per message, with the array in the column `ELEMENTS`.
        """
        messages = messages.withColumn(REASON, self._reason)
        rest = [name for name in messages.columns if name != ELEMENTS]
        elements = F.when(F.col(REASON).isNull(), F.col(ELEMENTS))
        rows = messages.select(*rest, F.posexplode_outer(elements).alias(ELEMENT, _OF))
        others = [name for name in rest if name not in self._own]
        return rows.withColumns(self._columns).select(*self._own, ELEMENT, *others)


def _value(topic: Topic, name: str, element: Column) -> Column:
    """The value of a field in an element, as `nested_value_of` has converted it."""
    explode = topic.explode
    path = topic.place(name)[len(explode.path) :] if explode else ()
    return reduce(lambda row, part: row.getField(snake_case(part)), path, element)


def _broken(topic: Topic, path: str) -> Column:
    """Why an element is not accepted, though all of its values are of their types."""

    def reason(element: Column, index: Column) -> Column:
        place = F.concat(F.lit(f"{path}["), index.cast("string"), F.lit("]"))
        found = [F.when(element.isNull(), F.concat(place, F.lit(" is null")))]
        for name, spec in topic.element_fields.items():
            if spec.required:
                missing = F.concat(F.lit(f"field '{name}' is missing: "), place)
                found.append(F.when(_value(topic, name, element).isNull(), missing))
        return F.coalesce(*found)

    reasons = F.transform(F.col(ELEMENTS), reason)
    return F.get(F.filter(reasons, lambda each: each.isNotNull()), F.lit(0))
