"""Tests that values suit the names of their fields."""

import random
import re

import pytest

from lakehouse.messages.plausible.names import free_cell, is_fixed, other_cell

NOW = 1_750_000_000_000  # 2025-06-15


@pytest.mark.parametrize(
    ("name", "kind", "form"),
    [
        ("emailAddress", "string", r"[a-z.]+\d+@example\.(com|net|org)"),
        ("e_mail", "string", r".+@example\..+"),
        ("firstName", "string", r"[A-Z][a-z]+"),
        ("name", "string", r"[A-Z][a-z]+ [A-Z][A-Za-z']+"),
        ("product_name", "string", r"[A-Z][a-z]+ [A-Z][a-z]+"),
        ("homepageUrl", "string", r"https://example\.(com|net|org)/[a-z]+/\d+"),
        ("shippingCity", "string", r"[A-Z].+"),
        ("countryCode", "string", r"[A-Z]{2}"),
        ("currency", "string", r"[A-Z]{3}"),
        ("status", "string", r"new|active|paused|closed"),
        ("requestUuid", "string", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f-]{16}"),
        ("clientIp", "string", r"192\.0\.2\.\d+"),
        ("postal_code", "string", r"\d{5}"),
        ("accountId", "string", r"account-[1-9]\d?"),
        ("createdAt", "string", r"2025-0[56]-\d\dT.+"),
        ("comment", "string", r"[A-Z][a-z ]+\."),
        ("whatever", "string", r"[a-z]+"),
        ("age", "int", r"1[89]|[2-8]\d|90"),
        ("accountId", "long", r"[1-9]\d?"),
        ("latitude", "double", r"-?\d\d?\.\d+"),
        ("unitPrice", "decimal(12,2)", r"[1-9]\d{0,2}\.\d\d"),
        ("share", "decimal(3,2)", r"[01]\.\d\d"),
        ("birthDate", "date", r"19[4-9]\d-.+|200\d-.+"),
        ("dueDate", "date", r"202[56]-.+"),
        ("updatedAt", "timestamp", r"2025-06-15T15:06:40"),
        ("isOpen", "boolean", r"true|false"),
    ],
)
def test_the_name_of_a_field_decides_what_its_values_look_like(
    name: str, kind: str, form: str
) -> None:
    rng = random.Random(1)
    found = [free_cell(rng, name, kind, NOW, 99) for _ in range(200)]
    assert [each for each in found if not re.fullmatch(form, each)] == []
    assert len({*found}) > 1 or name == "updatedAt"


def test_facts_about_the_origin_of_a_row_do_not_change_with_it() -> None:
    assert is_fixed("createdAt")
    assert is_fixed("birth_date")
    assert not is_fixed("updatedAt")
    assert not is_fixed("status")


@pytest.mark.parametrize(
    ("name", "kind", "avoided"),
    [
        ("status", "string", {"new", "active", "paused"}),
        ("flag", "boolean", {"false"}),
        ("share", "int", {"0"}),
        ("month", "double", {"1"}),
        ("at", "timestamp_ms", {"-1"}),
    ],
)
def test_another_value_is_none_of_those_to_avoid(name: str, kind: str, avoided: set[str]) -> None:
    rng = random.Random(1)
    for _ in range(200):
        assert other_cell(rng, name, kind, NOW, avoided) not in avoided


def test_a_name_that_leaves_no_other_value_does_not_hang() -> None:
    assert other_cell(random.Random(1), "share", "int", NOW, {"0", "1"}) in ("0", "1")
