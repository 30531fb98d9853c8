"""The version that dbt shows for the adapter: that of the package."""

from importlib.metadata import version as version_of

version = version_of("orders-lakehouse")
