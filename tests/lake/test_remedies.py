"""Tests the remedies for errors of the Pulsar source."""

import pkgutil

from lake.remedies import REMEDIES, said
from pulsar_spark.errors import DataLossError, LakehouseError


def test_remedies_belong_to_existing_errors() -> None:
    assert all(issubclass(pkgutil.resolve_name(name), LakehouseError) for name in REMEDIES)


def test_an_error_is_shown_with_the_remedy_of_its_class() -> None:
    assert said(LakehouseError("no.")) == "no."
    assert said(DataLossError("gone.")).startswith("gone. In the lakehouse, LAKEHOUSE_ACCEPT")
