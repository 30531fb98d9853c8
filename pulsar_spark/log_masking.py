"""Masks secrets in logs and errors. Imports nothing heavy, because every Python worker loads it."""

import re

HIDDEN = "***"
# Names whose values are always secret. Names of files that hold secrets do not match.
SECRET_NAME = re.compile(
    r"(?i)(token|secret|password|passwd|credentials?|authorization|api_?key|private_?key)$"
)
_SHAPES = (
    (re.compile(r"\beyJ[\w-]{4,}\.[\w-]+(\.[\w-]*)?"), HIDDEN),  # a JWT
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"(?<=://)[^/\s@]+:[^/\s@]+(?=@)"), HIDDEN),  # user and password in a URL
    (
        re.compile(r"""(?i)((?:token|secret|password)(?:=|"\s*:\s*))("[^"]*"|[^\s",;&}]+)"""),
        rf"\1{HIDDEN}",
    ),
)
_SHORTEST = 4
_known: set[str] = set()


def hide(secret: str) -> str:
    """Mask this secret in all logs from now on, and return it."""
    if len(secret) >= _SHORTEST:
        _known.add(secret)
    return secret


def redact(text: str) -> str:
    """The text with known secrets masked, and with everything that looks like a secret masked."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for shape, masked in _SHAPES:
        text = shape.sub(masked, text)
    return text
