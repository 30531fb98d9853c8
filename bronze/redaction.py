"""Keeps secrets out of what is logged. Imports nothing, as each Python worker imports it."""

import re

HIDDEN = "***"
# Names of values that are secret whatever they are; not the names of files that hold them.
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
    """From now on, mask this secret wherever it would be logged; returns it."""
    if len(secret) >= _SHORTEST:
        _known.add(secret)
    return secret


def redact(text: str) -> str:
    """The text without what is known to be secret, or has the shape of it."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for shape, masked in _SHAPES:
        text = shape.sub(masked, text)
    return text
