"""Computes pseudonyms: keyed hashes of personal data.

Equal values have equal hashes. Without the key, nobody can recover a value from its hash, not even
by trying a list of known addresses.

As with the secrets in `connection.py`, settings hold only the name of the key. The key itself is
read where hashes are computed, in Spark's Python workers. No table, view, plan, checkpoint or log
therefore contains it.
"""

import hmac
import os
from dataclasses import dataclass
from pathlib import Path

from pulsar_spark.errors import SettingsError
from pulsar_spark.log_masking import hide

SHORTEST = 16
FINGERPRINT = b"lakehouse: fingerprint of the secret"


@dataclass(frozen=True)
class PseudonymSecret:
    """The environment variable or the file that holds the key; `file` wins if both are set."""

    env: str | None = None
    file: str | None = None

    def read(self) -> bytes:
        """Read the key, without the white space around it, and mask it in all logs from now on.

        Raises:
            SettingsError: the key is absent, or short enough to be guessed.
        """
        where = self.file or self.env or ""
        try:
            text = Path(self.file).read_text() if self.file else os.environ[where]
        except (OSError, KeyError) as error:
            message = (
                f"The pseudonym secret cannot be read from {where}. Spark's workers need it "
                "too: on a cluster, name a file that exists on all machines (LAKEHOUSE_"
                "PSEUDONYM_SECRET_FILE)."
            )
            raise SettingsError(message) from error
        secret = hide(text.strip())
        if len(secret) < SHORTEST:
            message = (
                f"The pseudonym secret in {where} has fewer than {SHORTEST} characters, so it "
                "can be guessed. Use a random one, for example from `openssl rand -hex 32`."
            )
            raise SettingsError(message)
        return secret.encode()

    def fingerprint(self) -> str:
        """A hash by which a changed key is noticed. It reveals nothing about the key."""
        return keyed_hash(self.read(), FINGERPRINT)[:SHORTEST]


def keyed_hash(key: bytes, value: bytes) -> str:
    """The HMAC-SHA-256 of a value in hexadecimal, as standard tools compute it."""
    return hmac.digest(key, value, "sha256").hex()
