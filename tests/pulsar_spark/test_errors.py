"""Tests that an error keeps what happened and its remedy apart."""

import pickle

import pytest

from pulsar_spark.errors import LakehouseError, SettingsError


class SomeError(SettingsError):
    """A subclass of a subclass."""


@pytest.mark.parametrize("kind", [LakehouseError, SettingsError, SomeError])
def test_what_happened_and_its_remedy_survive_pickling(kind: type[LakehouseError]) -> None:
    error = kind("Port 1 is in use.", "Choose another.")
    for each in (error, pickle.loads(pickle.dumps(error))):  # noqa: S301 - our own
        assert type(each) is kind
        assert (each.what, each.remedy) == ("Port 1 is in use.", "Choose another.")
        assert str(each) == "Port 1 is in use. Choose another."


@pytest.mark.parametrize("what", ["Port 1 is in use.", ""])
def test_an_error_without_a_remedy_is_its_message(what: str) -> None:
    error = LakehouseError(what)
    for each in (error, pickle.loads(pickle.dumps(error))):  # noqa: S301 - our own
        assert (each.what, each.remedy, str(each)) == (what, "", what)
    assert repr(error) == f"LakehouseError({what!r})"
