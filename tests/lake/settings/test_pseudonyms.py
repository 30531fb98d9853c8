"""Tests pseudonyms and the secret from which they are computed."""

from pathlib import Path

import pytest

from lake.settings.pseudonyms import PseudonymSecret, keyed_hash
from pulsar_spark.errors import SettingsError
from pulsar_spark.log_masking import redact


def test_a_pseudonym_is_the_hmac_that_other_tools_compute() -> None:
    found = keyed_hash(b"Jefe", b"what do ya want for nothing?")  # test case 2 of RFC 4231
    assert found.startswith("5bdcc146bf60754e6a04")  # pragma: allowlist secret
    assert found.endswith("9dec58b964ec3843")  # pragma: allowlist secret
    assert len(found) == 64


def test_a_secret_is_read_without_white_space_and_masked_in_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("  of-a-file-4711-of-no-use \n")
    monkeypatch.setenv("OURS", "of-the-environment-4712")
    in_file = PseudonymSecret("OURS", str(tmp_path / "secret"))
    assert in_file.read() == b"of-a-file-4711-of-no-use"
    in_environment = PseudonymSecret("OURS")
    assert in_environment.read() == b"of-the-environment-4712"
    assert "4711" not in redact("it is of-a-file-4711-of-no-use")
    assert in_file.fingerprint() != in_environment.fingerprint()
    assert len(in_file.fingerprint()) == 16


def test_a_secret_that_is_absent_or_short_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="cannot be read from .*none"):
        PseudonymSecret(file=str(tmp_path / "none")).read()
    monkeypatch.setenv("OURS", "0" * 15)
    with pytest.raises(SettingsError, match="in OURS has fewer than 16 characters"):
        PseudonymSecret("OURS").read()
