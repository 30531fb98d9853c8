"""Declarations that mask and hash users for gold, and the expected values in plain Python."""

import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lake.settings.settings import SHOP_TOPICS

SECRET = "of the tests, and of no use elsewhere"  # noqa: S105  # pragma: allowlist secret
KEPT = '{ type = "string", personal = "keep" }'


def protection(folder: Path, topics: Path = SHOP_TOPICS) -> dict[str, Path]:
    """Return settings for a copy of a topic file that masks first names and hashes addresses."""
    folder.mkdir(parents=True, exist_ok=True)
    secret, file = folder / "pseudonym-secret", folder / f"protected-{topics.name}"
    secret.write_text(f"{SECRET}\n")
    text = topics.read_text()
    for name, how in (("firstName", "mask"), ("emailAddress", "hash")):
        assert f"{name} = {KEPT}" in text
        text = text.replace(f"{name} = {KEPT}", f"{name} = {KEPT.replace('keep', how)}")
    file.write_text(text)
    return {"topics": file, "pseudonym_secret_file": secret}


def as_gold_sees(user: Mapping[str, Any]) -> dict[str, Any]:
    return {**user, "first_name": "***", "email_address": hashed(user["email_address"])}


def hashed(value: str) -> str:
    return hmac.new(SECRET.encode(), value.encode(), "sha256").hexdigest()
