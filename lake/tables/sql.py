"""Quotes for Spark's SQL: a path or a text may have any character."""


def literal(text: str) -> str:
    """A text as a SQL string, with its quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def identifier(name: str) -> str:
    """A name between backticks."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def delta_at(path: str) -> str:
    """The Delta table at a path, as SQL names it."""
    return f"delta.{identifier(path)}"
