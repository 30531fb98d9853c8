"""Quotes names and texts for Spark SQL, because they may contain any character."""


def literal(text: str) -> str:
    """A text as a quoted SQL string."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def identifier(name: str) -> str:
    """A name in backticks."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def delta_at(path: str) -> str:
    """The name in SQL of the Delta table at a path."""
    return f"delta.{identifier(path)}"
