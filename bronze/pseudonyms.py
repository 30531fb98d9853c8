"""Keyed hashes of personal data: equal values have equal hashes, and without the key nobody can
tell a value from its hash, also not by trying all addresses of a list.

Like the secrets of `connection.py` the key is named and never held: it is read where hashes are
made, in Spark's Python workers. So no table, view, plan, checkpoint or log has it.
"""

import hmac
import os
from dataclasses import dataclass
from pathlib import Path

from bronze.errors import SettingsError
from bronze.redaction import hide

SHORTEST = 16
FINGERPRINT = b"lakehouse: fingerprint of the secret"


@dataclass(frozen=True)
class PseudonymSecret:
    """The environment variable or the file that holds the key."""

    env: str | None = None
    file: str | None = None

    def read(self) -> bytes:
        """The key itself; white space around it is no part of it.

        Raises:
            SettingsError: it is absent, or so short that it can be guessed.
        """
        where = self.file or self.env or ""
        try:
            text = Path(self.file).read_text() if self.file else os.environ[where]
        except (OSError, KeyError) as error:
            message = (
                f"The secret of pseudonyms cannot be read from {where}. Spark's workers need it "
                "too: on a cluster, name a file that all machines have (LAKEHOUSE_"
                "PSEUDONYM_SECRET_FILE)."
            )
            raise SettingsError(message) from error
        secret = hide(text.strip())
        if len(secret) < SHORTEST:
            message = (
                f"The secret of pseudonyms in {where} has less than {SHORTEST} characters, so it "
                "can be guessed. Take a random one, such as of `openssl rand -hex 32`."
            )
            raise SettingsError(message)
        return secret.encode()

    def fingerprint(self) -> str:
        """By which another key is noticed; tells nothing of it."""
        return keyed_hash(self.read(), FINGERPRINT)[:SHORTEST]


def keyed_hash(key: bytes, value: bytes) -> str:
    """HMAC-SHA-256 in hexadecimal, as any tool computes it."""
    return hmac.digest(key, value, "sha256").hex()
