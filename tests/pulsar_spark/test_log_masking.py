"""Tests which texts are masked in logs and errors."""

import pytest

from pulsar_spark.log_masking import SECRET_NAME, hide, redact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sent eyJhbGciOi.J9eyJz.dWIi now", "sent *** now"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("pulsar://u:p@host:6650", "pulsar://***@host:6650"),  # pragma: allowlist secret
        ("token=abc, password=d'e", "token=***, password=***"),  # pragma: allowlist secret
        ('{"my_secret": "a b"}', '{"my_secret": ***}'),  # pragma: allowlist secret
        ("the token has expired", "the token has expired"),
        ("http://host:80/path", "http://host:80/path"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_a_known_secret_is_masked_wherever_it_is() -> None:
    assert hide("hunter2-hunter2") == "hunter2-hunter2"
    hide("hunter2")  # part of the other
    assert redact("x=hunter2-hunter2 y=hunter2") == "x=*** y=***"
    hide("abc")
    assert redact("abc") == "abc", "too short to be searched for"


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        *(("token", True), ("sql_password", True), ("apiKey", True), ("api_key", True)),
        *(("private_key", True), ("Authorization", True), ("client_secret", True)),
        *(("token_file", False), ("password_env", False), ("key", False), ("url", False)),
    ],
)
def test_names_of_secrets_are_told_from_names_of_files(name: str, is_secret: bool) -> None:
    assert bool(SECRET_NAME.search(name)) is is_secret
