"""Conditions on keys for delta-rs, whose SQL is DataFusion's."""

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc


def is_found_by(values: pa.ChunkedArray) -> bool:
    """Whether delta-rs finds all rows with some values of a key.

    It takes other values for equal than Spark if they are floating-point numbers. Spark drops the
    microseconds of instants in a file's statistics, so that the file may seem not to have them.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        return all(is_found_by(pa.chunked_array([each])) for each in _members(values))
    if pa.types.is_timestamp(kind):
        wanted = values.cast(pa.timestamp("us", kind.tz))
        whole = pc.equal(wanted, pc.floor_temporal(wanted, unit="millisecond"))
        return pc.all(whole).as_py() is not False  # NULL if there are only NULLs
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    )


def same_key(keys: pa.Table) -> str:
    """The condition of a merge that rows have the same key, by which files can be skipped."""
    first, name = keys.column(0), keys.column_names[0]
    parts: dict[str, pa.Array | pa.ChunkedArray] = {}
    for each in keys.column_names:
        if pa.types.is_struct(keys[each].type):
            members = zip(keys[each].type.names, _members(keys[each]), strict=True)
            parts |= {f"\"{each}\"['{member}']": values for member, values in members}
        else:
            parts[f'"{each}"'] = keys[each]
    found = [
        f"(t.{part} IS NOT DISTINCT FROM s.{part})" if values.null_count else f"t.{part} = s.{part}"
        for part, values in parts.items()
    ]
    if not first.null_count and (pa.types.is_integer(first.type) or pa.types.is_string(first.type)):
        found.append(in_range(f't."{name}"', first))
    return " AND ".join(found)


def in_range(column: str, values: pa.ChunkedArray) -> str:
    """The condition that a column is between the least and the greatest of some values.

    Args:
        column: the column, quoted.
        values: integers or texts.
    """
    low, high = (literal_of(each.as_py()) for each in pc.min_max(values).values())
    return f"{column} >= {low} AND {column} <= {high}"


def literal_of(value: int | str | dt.date) -> str:
    """A value as DataFusion's SQL writes it, where a backslash has no meaning."""
    if isinstance(value, dt.date):
        return f"'{value.isoformat()}'"
    return str(value) if isinstance(value, int) else "'{}'".format(value.replace("'", "''"))


def _members(values: pa.ChunkedArray) -> list[pa.Array]:
    return list(values.combine_chunks().flatten())
