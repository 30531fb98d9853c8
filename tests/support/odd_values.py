"""More than 200 odd values as JSON text, and odd Avro values, to be read as every type."""

import datetime as dt
import json
import struct
import uuid
from decimal import Decimal
from typing import Any

INTEGERS = [
    *("0", "1", "-1", "-0", "7", "42", "127", "128", "255", "256", "32767", "65536", "100000"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "4294967296"),
    *("9007199254740993", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "18446744073709551616"),
    *("999999999", "9999999999", "99999999999", "10000000000", "-9999999999", "1" * 38, "1" * 39),
    *("1" * 60, "9" * 400, "20260105", "20000", "0" + "7", "+5", "--5", "1767571200"),
    # Milliseconds: the first and last of the years 1 to 9999, and their neighbours.
    *("1489876693000", "-62135596800000", "-62135596800001", "253402300799999"),
    *("253402300800000", "1790000000000000000", "-99999999999999999"),
]
FRACTIONS = [
    *("1.0", "1.5", "-1.5", "0.0", "-0.0", "0.005", "0.015", "0.025", "-0.005", "0.0049999999"),
    *("13.75", "13.750000000000002", "13.755", "9999999999.994", "9999999999.995", "1e3", "1E3"),
    *("1e+3", "1e-3", "1.5e1", "-1.5E+2", "12345678901234567.12", "1.23456789012345678901e5"),
    *("1e308", "1.7976931348623157e308", "1.7976931348623159e308", "-1e308", "1e309", "1e400"),
    *("3.4028234663852886e38", "3.4028235e38", "3.4028235677973366e38", "3.4028236e38", "-3.5e38"),
    *("16777217", "16777219.0", "0.1", "1.1754943508222875e-38", "1e-45", "1e-46", "7e-46"),
    *("-1e400", "5e-324", "1e-400", "1e9999", "1e-9999", "1e10000", "1e99999", "1e-99999"),
    *("1e20000000", "-1e20000000", "1e-20000000", "1e2147483647", "1e-2147483648", "0e20000000"),
    *("1e600000000", "0.1e00001", "0." + "3" * 990, "1" * 990, "1" * 1100, "0." + "1" * 1100),
    *(".5", "5.", "+1.5", "1_000", "0x1F", "1e", "1.e5", "NaN", "Infinity", "-Infinity"),
]
OTHERS = [
    *("null", "true", "false", "True", "nul", "[]", "{}", "[1]", '["x"]', '{"a": 1}', "[[[[]]]]"),
    *('{"v": "x"}', "[null]", '{"price": "13,75"}', "[" * 900 + "]" * 900, '{"b": 1, "b": 2}'),
]
NUMBERS_AS_TEXT = [
    *("0", "1", "-1", "-0", "+1", "007", "-007", "00", "1.0", "1.50", "-1.5", ".5", "5.", "-.5"),
    *("13,75", "1,375.00", "1.375,00", "13.75", "13.755", "1 000", "1_000", "1'000", "1e3", "1E+3"),
    *("1e-3", "1e9999", "1e10000", "1e20000000", "1,0e20000000", "1e-20000000", "--1", "+-1", "1-"),
    *(" 1", "1 ", "\t1", "1\n", "1\r\n", "", " ", "NaN", "nan", "Infinity", "-Infinity", "INF"),
    *("+INF", "-INF", "inf", "null", "none", "0x1F", "0b1", "1f", "1d", "1L", "1.5f", "1e", "e1"),
    *(
        "\u0661\u0662",
        "\uff11\uff12",
        "\u0967\u0968",
        "1\u066b5",
        "\uff11\uff13\uff0e\uff17\uff15",
        "\u00b2",
        "\u2163",
        "\u00bd",
        "\u22121",
        "1\u00a0000",
    ),
    *("9223372036854775808", "2147483648", "1" * 60, "0." + "3" * 990, "1" * 1100, "$1", "1 EUR"),
    *("13,75 EUR", "1,", ",1", ",", "1,,2", "\u200b1", "1\u0000", "\u00001", "1e\u0663"),
]
WORDS = [
    *("x", "abc", "true", "false", "TRUE", "True", "t", "y", "yes", "on", "[]", "{}", '{"a": 1}'),
    *(
        "a|b",
        "|",
        "'",
        '"',
        "\\",
        "/",
        "a\nb",
        "K\u00e4se",
        "\u65e5\u672c",
        "\U0001f600",
        "\u0000",
        "\u007f",
        "\ufffd",
    ),
    *("\ufeffx", "x" * 5000, "e" * 50, "a,b", ":1e20000000", "A", "%s", "${x}", "--", ";"),
]
BASE64 = [
    *("AAAA", "AP8=", "AA==", "AB==", "AA=", "A", "AAA", "AAAAA", "A-_A", "AA\nAA", "AAAA\r\nAAAA"),
    *(
        " AAAA ",
        "AAAA====",
        "A===",
        "====",
        "=",
        "AA==AA==",
        "AAAA!",
        "\u00c4\u00c4\u00c4\u00c4",
        "AAAA\u0000",
        "//++",
    ),
]
DATES = [
    *("2026-01-05", "2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "2026-13-01"),
    *("2026-00-01", "2026-01-32", "2026-01-00", "2026-1-5", "2026-01-5", "26-01-05", "20260105"),
    *("2026-W01-1", "2026-005", "20000", "2026", "2026-01", "0000-01-01", "0001-01-01"),
    *("-0001-01-01", "+2026-01-05", "9999-12-31", "10000-01-01", "+12345-01-01", "12345-01-01"),
    *("2026-01-05T", "2026-01-05Tgarbage", "2026-01-05 ", " 2026-01-05", "2026-01-05\n"),
    *("2026/01/05", "05.01.2026", "01/05/2026", "2026-01-05Z", "2026-01-05+01:00"),
    *(
        "\uff12\uff10\uff12\uff16-01-05",
        "\u0662\u0660\u0662\u0666-\u0660\u0661-\u0660\u0665",
        "2026\u221201\u221205",
        "today",
        "now",
        "epoch",
        "yesterday",
    ),
    *("0000-00-00", "1582-10-10", "1582-10-15", "January 5, 2026", "2026-Jan-05"),
]
TIMES = [
    *("2026-01-05T12:30:00", "2026-01-05 12:30:00", "2026-01-05T12:30", "2026-01-05T12"),
    *("2026-01-05T12:30:00Z", "2026-01-05T12:30:00z", "2026-01-05t12:30:00", "2026-01-05T12:30Z"),
    *("2026-01-05T12:30:00.1", "2026-01-05T12:30:00.123456Z", "2026-01-05T12:30:00.123456789Z"),
    *("2026-01-05T12:30:00.9999999Z", "2026-01-05T12:30:00.1234567890Z", "2026-01-05T12:30:00."),
    *("2026-01-05T12:30:00,5", "2026-01-05T12:30.5", "2026-01-05T12:30:00+01:00"),
    *("2026-01-05T12:30:00-0530", "2026-01-05T12:30:00+01", "2026-01-05T12:30:00+1"),
    *("2026-01-05T12:30:00+18:00", "2026-01-05T12:30:00-18:00", "2026-01-05T12:30:00+18:01"),
    *("2026-01-05T12:30:00+23:59", "2026-01-05T12:30:00+01:60", "2026-01-05T12:30:00+01:00:30"),
    *("2026-01-05T12:30:00 +01:00", "2026-01-05T12:30:00 UTC", "2026-01-05T12:30:00UTC"),
    *("2026-01-05T12:30:00 Europe/Rome", "2026-01-05T12:30:00[Europe/Rome]", "12:30", "T12:30"),
    *("12:30:00", "2026-01-05T24:00:00", "2026-01-05T23:59:60", "2016-12-31T23:59:60Z"),
    *("2026-01-05T25:00:00", "2026-01-05T12:60:00", "2013-01-01T15:60:16", "2026-01-05T1:2:3"),
    *("0000-01-01T00:00:00", "-0001-01-01T00:00:00", "0001-01-01T00:00:00Z"),
    *("0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00-01:00", "9999-12-31T23:59:59.999999Z"),
    *("9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59+01:00", "10000-01-01T00:00:00"),
    *("+12345-01-01T00:00:00", "20000-01-01T00:00:00Z", "2026-01-05T12:30:00Zgarbage"),
    *("2026-01-05T12:30:00Z ", " 2026-01-05T12:30:00Z", "2026-01-05  12:30:00", "1767571200"),
    *(
        "2026-01-05T12:30:00Z\n",
        "2026-01-05T\uff11\uff12:30:00",
        "2023-02-29T00:00:00",
        "2026-01-05T12:30:00--01:00",
    ),
    *("Mon, 05 Jan 2026 12:30:00 GMT", "2026-01-05T12:30:00+00:00", "2026-01-05T12:30:00-00:00"),
]
TEXTS = [*NUMBERS_AS_TEXT, *WORDS, *BASE64, *DATES, *TIMES]
RAW = [  # strings in forms that json.dumps does not write
    *(r'"\ud800"', r'"\udc00x"', r'"a\ud800"', r'"\ud83d\ude00"', r'"\ude00\ud83d"'),
    *(r'"\u0041"', r'"\/"', r'"1\u0000"', '"\x7f"', '"a\tb"', '"unfinished', r'"\x41"', "'x'"),
    *('"\u00e9"', '"\u2028"', r'"\\u0041"', r'"\""', r'"a\"b\",\"c\": 1"'),
]
TOKENS = list(
    dict.fromkeys(
        [
            *INTEGERS,
            *FRACTIONS,
            *OTHERS,
            *(json.dumps(text) for text in TEXTS),
            *(json.dumps(text, ensure_ascii=False) for text in TEXTS),
            *RAW,
        ]
    )
)

LONGS = [0, 1, -1, 12, 1234, 20260105, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1]
LONGS += [-(2**63), 1489876693000, 1767571200, -62135596800001, -62135596800000, 253402300799999]
LONGS += [253402300800000, 1790000000000000000, 1790000000000000]
DOUBLES = [0.0, -0.0, 0.1, 1.5, 13.755, 1e-5, 1e16, 1e22, 1e300, 5e-324, 1.7976931348623157e308]
DOUBLES += [float("nan"), float("inf"), float("-inf"), 9999999999.995, 123456789.125, -2.5]
ENUM = {"type": "enum", "name": "E", "symbols": ["x", "true", "NaN", "AAAA"]}
LISTS = {"type": "array", "items": "string"}


def _decimal(scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}


def _logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


UTC = dt.timezone.utc
INSTANTS = [
    dt.datetime(*parts, tzinfo=UTC)
    for parts in ((1, 1, 1), (1969, 12, 31, 23, 59, 59, 999000), (1970, 1, 1), (2026, 1, 5, 12, 30))
] + [dt.datetime(2026, 1, 5, 12, 30, 0, 1000, UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 0, UTC)]
AVRO: list[tuple[Any, Any]] = [
    *(("boolean", value) for value in (True, False)),
    *(("int", value) for value in LONGS if abs(value) < 2**31),
    *(("long", value) for value in LONGS),
    *(("double", value) for value in DOUBLES),
    *(("float", struct.unpack(">f", struct.pack(">f", x))[0]) for x in DOUBLES if not x > 1e38),
    *(("string", text) for text in TEXTS),
    *(("bytes", value) for value in (b"", b"x", b"\x00\xff", b"1234", b"13.75", b"x" * 5000)),
    *(({"type": "fixed", "name": "F", "size": 2}, value) for value in (b"\x00\xff", b"ab")),
    *((ENUM, symbol) for symbol in ENUM["symbols"]),
    *((_decimal(2), Decimal(text)) for text in ("0.00", "13.75", "-0.01", "99999999999999999.99")),
    *((_decimal(20), Decimal(text)) for text in ("0.00500000000000000000", "1e-20")),
    (_logical("string", "uuid"), uuid.UUID(int=2**127 + 1)),
    *((_logical("int", "date"), day.date()) for day in INSTANTS),
    *((_logical("long", "timestamp-millis"), instant) for instant in INSTANTS if instant.year > 1),
    *((_logical("long", "timestamp-micros"), instant) for instant in INSTANTS),
    *((_logical("long", "local-timestamp-millis"), x.replace(tzinfo=None)) for x in INSTANTS[2:]),
    *((_logical("long", "local-timestamp-micros"), x.replace(tzinfo=None)) for x in INSTANTS),
    *((_logical("int", "time-millis"), dt.time(*each)) for each in ((0,), (12, 30), (23, 59, 59))),
    (LISTS, []),
    (LISTS, ["x"]),
    ({"type": "map", "values": "long"}, {"a": 1}),
    ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}, {"a": 1}),
    ("null", None),
]
"""Odd values in Avro, each with its type."""
UNREADABLE: list[tuple[Any, Any, int]] = [
    (_logical("long", name), "long", value)
    for name in ("timestamp-millis", "timestamp-micros", "local-timestamp-millis")
    for value in (2**63 - 1, -(2**63), 253402300800000000)
]
UNREADABLE += [(_logical("int", "date"), "int", value) for value in (2**31 - 1, -(2**31), -719163)]
"""Odd values in Avro that Python cannot represent, as (declared type, written type, value)."""


def _primitives() -> list[tuple[str, bytes]]:
    texts = [*(text.encode() for text in TEXTS), *(t.encode("utf-8", "surrogatepass") for t in RAW)]
    invalid = (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xfe\xffx")
    found = [(schema, text) for schema in ("STRING", "BYTES") for text in (*texts, *invalid)]
    found += [("BOOLEAN", bytes([byte])) for byte in (0, 1, 2, 127, 128, 255)]
    for size in (1, 2, 4, 8):
        edges = [*LONGS, *(sign * 2**bits for bits in (7, 8, 15, 16, 31) for sign in (1, -1))]
        found += [
            (f"INT{8 * size}", n.to_bytes(size, "big", signed=True))
            for n in edges
            if -(2 ** (8 * size - 1)) <= n < 2 ** (8 * size - 1)
        ]
    days = (0, 1, -1, 20458, -719162, -719163, 2932896, 2932897, 2**31, 2**63 - 1, -(2**63))
    found += [("LOCAL_DATE", day.to_bytes(8, "big", signed=True)) for day in days]
    for schema in ("DATE", "TIMESTAMP"):
        found += [(schema, n.to_bytes(8, "big", signed=True)) for n in LONGS]
    found += [("DOUBLE", struct.pack(">d", number)) for number in DOUBLES]
    floats = [number for number in DOUBLES if not 1e38 < number < float("inf")]
    found += [("FLOAT", struct.pack(">f", number)) for number in floats]
    numbers = {schema for schema, _ in found} - {"STRING", "BYTES"}
    found += [(s, b"\x01" * size) for s in sorted(numbers) for size in (0, 1, 2, 3, 4, 5, 7, 8, 9)]
    others = ("NONE", "LOCAL_TIME", "LOCAL_DATE_TIME", "INSTANT", "TIME", "PROTOBUF", "KEY_VALUE")
    return found + [(schema, payload) for schema in others for payload in (b"", b"1", b"\x00" * 8)]


PRIMITIVES = _primitives()
"""Odd payloads of bare values, each with the name of its schema in Pulsar."""
