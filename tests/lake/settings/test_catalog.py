"""Tests which addresses of a metastore are accepted."""

import pytest
from pydantic import ValidationError

from lake.settings.catalog import CatalogSettings


@pytest.mark.parametrize(
    "place",
    [
        "thrift://metastore:9083",
        "jdbc:postgresql://db.example.com:5432/hive",
        "jdbc:postgresql://db/hive?sslmode=verify-full",
        None,
    ],
)
def test_a_service_or_a_database_is_accepted(place: str | None) -> None:
    assert CatalogSettings(metastore=place).metastore == place


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("metastore:9083", "should match pattern"),
        ("thrift://metastore", "should match pattern"),
        ("jdbc:mysql://db/hive", "should match pattern"),
        ("jdbc:postgresql://u:x@db/hive", "should match pattern"),  # pragma: allowlist secret
        ("jdbc:postgresql://db/hive?Password=x", "metastore_password_file"),
    ],
)
def test_another_kind_or_an_address_with_a_password_is_refused(place: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CatalogSettings(metastore=place)
