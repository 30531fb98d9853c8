"""Options of `format("pulsar")`."""

import pytest

from bronze.errors import SettingsError
from bronze.options import PulsarOptions

GOOD = {
    "serviceUrl": "pulsar://127.0.0.1:6650",
    "adminUrl": "http://127.0.0.1:8080",
    "topic": "persistent://public/default/orders",
    "subscription": "lakehouse",
}


def test_options_are_read_whatever_their_case() -> None:
    # Spark hands them over in lower case.
    options = PulsarOptions.parse({name.lower(): value for name, value in GOOD.items()})
    assert options.topic == GOOD["topic"]
    assert options.read_timeout_ms == 60_000


def test_an_unknown_option_is_refused_by_name_with_a_guess() -> None:
    with pytest.raises(SettingsError, match="'adminurll'.*did you mean 'adminUrl'"):
        PulsarOptions.parse({**GOOD, "adminUrll": "x"})
    with pytest.raises(SettingsError, match="'zzz'.*known are serviceUrl"):
        PulsarOptions.parse({**GOOD, "zzz": "x"})


@pytest.mark.parametrize("name", list(GOOD))
def test_a_missing_option_is_named(name: str) -> None:
    rest = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(SettingsError, match=f"'{name}'.*missing"):
        PulsarOptions.parse(rest)


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1.5"])
def test_a_time_out_must_be_a_positive_number(value: str) -> None:
    with pytest.raises(SettingsError, match=f"'{value}' is no positive number"):
        PulsarOptions.parse({**GOOD, "readTimeoutMs": value})
