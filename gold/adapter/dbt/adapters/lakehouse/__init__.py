"""Where dbt looks for the adapter of a profile with `type: lakehouse`."""

from gold.kept.adapter import Plugin

__all__ = ["Plugin"]
