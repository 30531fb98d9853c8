"""Plausible cells of a CSV file by the name of their field, and by its type.

The same random numbers give the same cells.
"""

import base64
import json
import random
import re
import uuid
from collections.abc import Callable
from functools import cache

from lake.topics.field_type import DECIMAL, FieldType, field_type, snake_case
from lakehouse.messages.encode import epoch_ms
from lakehouse.messages.plausible.cells import DAY_MS, MANY, key_cell, time_cell

FIRST_NAMES = ("Ada", "Ali", "Chen", "Elena", "Femi", "Grace", "Ines", "Jonas", "Kenji", "Linh")
LAST_NAMES = ("Adeyemi", "Costa", "Garcia", "Haddad", "Ivanova", "Kim", "Meyer", "O'Neil", "Tanaka")
CITIES = ("Accra", "Berlin", "Bogotá", "Hanoi", "Lyon", "Montréal", "Nairobi", "Osaka", "São Paulo")
COUNTRIES = ("Brazil", "Canada", "France", "Germany", "Ghana", "Japan", "Kenya", "Vietnam")
STREETS = ("Bridge Street", "Church Lane", "Mill Road", "Park Avenue", "Station Road")
WORDS = (
    "amber",
    "basin",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "harbour",
    "island",
    "juniper",
)
HOSTS = ("example.com", "example.net", "example.org")
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (Macintosh)", "curl/8.5.0")

Draw = Callable[[random.Random], str]


def _one_of(*values: str) -> Draw:
    return lambda rng: rng.choice(values)


def _person(rng: random.Random) -> str:
    return f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"


def _label(rng: random.Random) -> str:
    return f"{rng.choice(WORDS)} {rng.choice(WORDS)}".title()


def _mail(rng: random.Random) -> str:
    name = _person(rng).lower().replace(" ", ".").replace("'", "")
    return f"{name}{rng.randrange(1000)}@{rng.choice(HOSTS)}"


def _url(rng: random.Random) -> str:
    return f"https://{rng.choice(HOSTS)}/{rng.choice(WORDS)}/{rng.randrange(1000)}"


def _address(rng: random.Random) -> str:
    return f"{rng.randrange(1, 200)} {rng.choice(STREETS)}, {rng.choice(CITIES)}"


def _sentence(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 8))).capitalize() + "."


def _digits(count: int, before: str = "") -> Draw:
    return lambda rng: before + "".join(rng.choice("0123456789") for _ in range(count))


def _network_address(rng: random.Random) -> str:
    return f"192.0.2.{rng.randrange(1, 255)}"


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


# The first pattern that is found in the column of a string decides.
STRINGS: tuple[tuple[str, Draw], ...] = (
    (r"e_?mail", _mail),
    (r"uuid|guid", _uuid),
    (r"(first|given)(_?name)?$", _one_of(*FIRST_NAMES)),
    (r"(last|family|sur)(_?name)?$", _one_of(*LAST_NAMES)),
    (r"(^|_)(host|domain)", _one_of(*HOSTS)),
    (r"(item|product|article|event|file|page|plan|team|shop|store)_?name|brand|company", _label),
    (r"name$|author|owner|customer$|contact", _person),
    (r"phone|mobile|(^|_)tel$", _digits(7, "+1 555 ")),
    (r"country_?code|iso_?code", _one_of("BR", "CA", "DE", "FR", "GH", "JP", "KE", "VN")),
    (r"country|nation", _one_of(*COUNTRIES)),
    (r"city|town|place|location|region", _one_of(*CITIES)),
    (r"zip|post(al)?_?code", _digits(5)),
    (r"street|address_?line|(^|_)address$", _address),
    (r"(^|_)ip(_|$)", _network_address),
    (r"url|uri|link|website|referr?er", _url),
    (r"user_?agent", _one_of(*AGENTS)),
    (r"browser", _one_of("Chrome", "Edge", "Firefox", "Safari")),
    (r"device|platform", _one_of("desktop", "phone", "tablet")),
    (r"currency", _one_of("BRL", "CAD", "EUR", "GBP", "JPY", "USD")),
    (r"lang|locale", _one_of("de", "en", "es", "fr", "ja", "pt", "vi")),
    (r"gender|sex$", _one_of("female", "male", "other")),
    (r"colou?r", _one_of("black", "blue", "green", "red", "white", "yellow")),
    (r"status|state$|phase", _one_of("new", "active", "active", "paused", "closed")),
    (r"severity|priority", _one_of("low", "medium", "high")),
    (r"unit", _one_of("kg", "l", "m", "piece")),
    (r"type|kind|categor|segment|tier|level|group|class", _one_of("basic", "plus", "special")),
    (r"(^|_)op$|operation|action|method", _one_of("create", "read", "update")),
    (r"description|comment|note|text|message|reason|subject|title", _sentence),
)
Range = tuple[float, float]
NUMBERS: tuple[tuple[str, Range], ...] = (
    (r"(^|_)age($|_)", (18, 90)),
    (r"year", (1990, 2025)),
    (r"month", (1, 12)),
    (r"latitude|(^|_)lat$", (-85, 85)),
    (r"longitude|(^|_)(lon|lng)$", (-180, 180)),
    (r"temperature|celsius", (-15, 35)),
    (r"probability|ratio|share|fraction|score", (0, 1)),
    (r"percent|humidity|battery", (0, 100)),
    (r"quantity|count|(^|_)(qty|n|num)($|_)", (1, 10)),
    (r"price|amount|cost|total|fee|balance|revenue|salary|value", (1, 500)),
)
PAST = re.compile(r"birth|born")
FUTURE = re.compile(r"due|expir|until|valid_to|(^|_)end")
TIME = re.compile(r"(^|_)(at|date|time|timestamp|on)$")
IDENTIFIER = re.compile(r"(^|_)(id|key|code|number|ref|sku)$")
FIXED = re.compile(r"created|registered|opened|joined|birth|born|(^|_)since$")
NOW = re.compile(r"updated|modified|changed|occurred|recorded|measured|sent|received")


def free_cell(rng: random.Random, name: str, kind: str, moment: int, keys: int) -> str:
    """A plausible value of a field of which the topic file says nothing but the type.

    Args:
        rng: the source of random numbers.
        name: the name of the field.
        kind: its type.
        moment: when the message is sent, in epoch milliseconds. Times are chosen around it.
        keys: how many keys an identifier may refer to.
    """
    if not field_type(kind).is_scalar:
        return _json(rng, name, field_type(kind), moment, keys)
    column = _column(name)
    if kind in ("date", "timestamp", "timestamp_ms"):
        return time_cell(kind, _around(rng, column, moment))
    if kind == "boolean":
        return rng.choice(("true", "false"))
    if kind == "binary":
        return base64.b64encode(rng.randbytes(rng.randint(1, 12))).decode()
    if kind == "string":
        return _text(rng, column, moment, keys)
    if kind in ("int", "long") and _is_in(IDENTIFIER, column):
        return str(rng.randint(1, keys))
    return _number(rng, column, kind)


def _json(rng: random.Random, name: str, kind: FieldType, moment: int, keys: int) -> str:
    """A plausible value as JSON, with up to three elements in an array or a map."""
    if kind.is_scalar:
        cell = free_cell(rng, name, kind.name, moment, keys)
        is_text = kind.name in ("string", "binary", "date", "timestamp")
        if kind.name == "timestamp_ms":
            return str(epoch_ms(cell))
        return json.dumps(cell) if is_text else cell
    if kind.name == "struct":
        members = (
            f"{json.dumps(own)}: {_json(rng, own, part, moment, keys)}" for own, part in kind.parts
        )
        return f"{{{', '.join(members)}}}"
    one = name[:-1] if len(name) > 2 and name.endswith("s") else name  # an element of `tags`
    parts = [_json(rng, one, kind.element, moment, keys) for _ in range(rng.randint(0, 3))]
    if kind.name == "array":
        return f"[{', '.join(parts)}]"
    known = zip(rng.sample(WORDS, len(parts)), parts, strict=True)
    return f"{{{', '.join(f'{json.dumps(n)}: {each}' for n, each in known)}}}"


def is_fixed(name: str) -> bool:
    """Whether a field with this name keeps its value when its row is updated."""
    return FIXED.search(snake_case(name)) is not None


def other_cell(rng: random.Random, name: str, kind: str, moment: int, avoided: set[str]) -> str:
    """A plausible value other than some, unless the type or the name leaves no other."""
    if kind == "boolean":
        return "false" if "true" in avoided else "true"
    found = ""
    for _ in range(100):
        found = free_cell(rng, name, kind, moment, MANY)
        if not _is_among(found, kind, avoided):
            break
    return found


def _is_among(found: str, kind: str, others: set[str]) -> bool:
    if kind in ("string", "binary", "date", "timestamp"):
        return found in others
    numbers = [float(each) for each in others if re.fullmatch(r"-?[0-9.]+", each)]
    return kind != "timestamp_ms" and float(found) in numbers


# Patterns are searched once per column, not once per row.
_column = cache(snake_case)


@cache
def _is_in(pattern: re.Pattern[str], column: str) -> bool:
    return pattern.search(column) is not None


@cache
def _draw_of(column: str) -> Draw | None:
    return next((draw for pattern, draw in STRINGS if re.search(pattern, column)), None)


@cache
def _range_of(column: str) -> Range:
    return next((found for pattern, found in NUMBERS if re.search(pattern, column)), (0, 1000))


def _around(rng: random.Random, column: str, moment: int) -> int:
    if _is_in(PAST, column):
        return moment - rng.randrange(18 * 365, 80 * 365) * DAY_MS
    if _is_in(FUTURE, column):
        return moment + rng.randrange(1, 365) * DAY_MS
    return moment if _is_in(NOW, column) else moment - rng.randrange(30 * DAY_MS)


def _text(rng: random.Random, column: str, moment: int, keys: int) -> str:
    if draw := _draw_of(column):
        return draw(rng)
    if _is_in(TIME, column):
        return time_cell("timestamp", _around(rng, column, moment))
    if _is_in(IDENTIFIER, column):
        prefix = IDENTIFIER.sub("", column) or "key"
        return key_cell("string", prefix, rng.randint(1, keys))
    return rng.choice(WORDS)


def _number(rng: random.Random, column: str, kind: str) -> str:
    low, high = _range_of(column)
    part = rng.random()
    value = low + (high - low) * (part * part if low >= 0 else part)  # small amounts are common
    if decimal := DECIMAL.fullmatch(kind):
        digits, scale = int(decimal[1]), int(decimal[2])
        scaled = round(abs(value) * 10**scale) % 10**digits
        text = f"{scaled // 10**scale}.{scaled % 10**scale:0{scale}d}" if scale else str(scaled)
        return f"-{text}" if value < 0 and scaled else text
    return repr(round(value, 4)) if kind in ("float", "double") else str(round(value))
