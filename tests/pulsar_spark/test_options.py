"""Tests the options of `format("pulsar")`."""

import pytest

from pulsar_spark.errors import SettingsError
from pulsar_spark.offsets import Position
from pulsar_spark.options import PulsarOptions
from pulsar_spark.source import PulsarStreamReader

GOOD = {
    "serviceUrl": "pulsar://127.0.0.1:6650",
    "adminUrl": "http://127.0.0.1:8080",
    "topic": "persistent://public/default/orders",
    "subscription": "lakehouse",
}


def test_option_names_are_case_insensitive() -> None:
    # Spark passes option names in lower case.
    options = PulsarOptions.parse({name.lower(): value for name, value in GOOD.items()})
    assert options.topics == (GOOD["topic"],)
    assert options.read_timeout_ms == 60_000


def test_an_unknown_option_is_refused_by_name_with_a_guess() -> None:
    with pytest.raises(SettingsError, match="'adminUrll'.*did you mean 'adminUrl'"):
        PulsarOptions.parse({**GOOD, "adminUrll": "x"})
    with pytest.raises(SettingsError, match="'zzz'.*known options: serviceUrl"):
        PulsarOptions.parse({**GOOD, "zzz": "x"})


@pytest.mark.parametrize("name", ["serviceUrl", "adminUrl"])
def test_a_missing_option_is_reported(name: str) -> None:
    rest = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(SettingsError, match=f"'{name}'.*missing"):
        PulsarOptions.parse(rest)


def test_a_stream_without_a_subscription_is_refused() -> None:
    rest = {key: value for key, value in GOOD.items() if key != "subscription"}
    with pytest.raises(SettingsError, match="'subscription'.*missing.*keeps unread messages"):
        PulsarStreamReader(PulsarOptions.parse(rest))


def test_topics_are_given_by_exactly_one_option() -> None:
    rest = {key: value for key, value in GOOD.items() if key != "topic"}
    several = {**rest, "topics": "persistent://a/b/c, persistent://a/b/d"}
    assert PulsarOptions.parse(several).topics == ("persistent://a/b/c", "persistent://a/b/d")
    with pytest.raises(SettingsError, match="it has none"):
        PulsarOptions.parse(rest)
    with pytest.raises(SettingsError, match="it has topic and topicsPattern"):
        PulsarOptions.parse({**GOOD, "topicsPattern": "persistent://a/b/c.*"})


@pytest.mark.parametrize("name", ["orders", "non-persistent://a/b/c", "persistent://a/b", "a/b/c"])
def test_a_topic_needs_its_full_name(name: str) -> None:
    with pytest.raises(SettingsError, match=f"'{name}' is not a full topic name"):
        PulsarOptions.parse({**GOOD, "topic": name})


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1.5"])
@pytest.mark.parametrize("name", ["readTimeoutMs", "maxMessagesPerTrigger", "maxBytesPerTask"])
def test_a_number_must_be_positive_and_whole(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}: '{value}' is not a positive whole number"):
        PulsarOptions.parse({**GOOD, name: value})


def test_bounds_are_ends_positions_or_instants() -> None:
    def starting(**options: str) -> object:
        return PulsarOptions.parse({**GOOD, **options}).starting

    assert starting() == "earliest"
    assert starting(startingPosition="latest") == "latest"
    stored = '{"persistent://a/b/c": {"ledger": 3, "entry": 4, "batch": 5}}'
    assert starting(startingPosition=stored) == {"persistent://a/b/c": Position(3, 4, 5)}
    assert starting(startingTimestamp="1767225600000") == 1767225600000
    assert starting(startingTimestamp="2026-01-01T00:00:00Z") == 1767225600000
    assert starting(startingTimestamp="2026-01-01T01:00:00+01:00") == 1767225600000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingTimestamp": "yesterday"}, "neither ISO 8601 nor epoch milliseconds"),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"startingPosition": "middle"}, "neither earliest, latest nor positions"),
        ({"startingPosition": '{"t": {"ledger": 1, "page": 2}}'}, "neither earliest, latest nor"),
        ({"startingPosition": "latest", "startingTimestamp": "1"}, "set only one of them"),
    ],
)
def test_a_bound_that_cannot_be_read_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        PulsarOptions.parse({**GOOD, **options})


def test_a_loss_is_accepted_only_with_a_table_to_record_it() -> None:
    assert PulsarOptions.parse(GOOD).data_loss_table is None
    accepted = {"failOnDataLoss": "false", "dataLossTable": "/lake/losses"}
    assert PulsarOptions.parse({**GOOD, **accepted}).data_loss_table == "/lake/losses"
    for name in accepted:
        with pytest.raises(SettingsError, match="failOnDataLoss=false and dataLossTable must"):
            PulsarOptions.parse({**GOOD, name: accepted[name]})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ('{"AWS_SESSION_TOKEN": "canary"}', "'AWS_SESSION_TOKEN' is not allowed"),
        ('{"AWS_REGION": 1}', "must be a JSON object"),
        ("canary", "must be a JSON object"),
    ],
)
def test_storage_options_of_the_loss_table_must_not_contain_credentials(
    given: str, says: str
) -> None:
    places = '{"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "https://s3.example.org"}'
    parsed = PulsarOptions.parse({**GOOD, "dataLossStorageOptions": places})
    assert parsed.data_loss_storage["AWS_REGION"] == "eu-west-1"
    with pytest.raises(SettingsError, match=says) as refused:
        PulsarOptions.parse({**GOOD, "dataLossStorageOptions": given})
    assert "canary" not in str(refused.value)
