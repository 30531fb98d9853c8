"""Drafts a topic file from what a broker has: schemas of the registry, and the newest messages.

A draft is a proposal. What cannot be seen, such as whether a topic is a changelog, is guessed from
a sample and marked with a comment.
"""

import datetime as dt
import itertools
import json
import re
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from lake.settings.settings import LakeSettings
from lake.topics.field_type import NAME
from lake.topics.nested import Place
from lake.topics.topic import OWN_COLUMNS, snake_case
from lake.topics.topic_file import TopicFile
from lakehouse.messages.consume import Received, Tail
from lakehouse.messages.draft_protobuf import Drafted, fields_of_protobuf
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import SettingsError
from silver.contract.avro import DEEPEST, checked, definition_of, one_of, struct_of, type_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SAMPLE = 200  # messages of each topic
HEAD = """# Drafted from the topics of {namespace}. Check each key and kind: they are guesses,
# from up to {sample} messages of each topic. docs/topic-files.md describes all keys.
"""
UNREADABLE = re.compile(r"""["'`\\\x00-\x1f\x7f\ud800-\udfff]""")  # in names of a path
OF_THE_SYSTEM = re.compile(r"__|.*-(RETRY|DLQ)$")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
MILLISECONDS = range(900_000_000_000, 4_200_000_000_000)  # from 1998 to 2103
TIME_NAME = re.compile(r"(at|time|timestamp|date)$", re.IGNORECASE)
PRIMITIVES = {
    **{"STRING": "string", "INT8": "int", "INT16": "int", "INT32": "int", "INT64": "long"},
    **{
        "FLOAT": "float",
        "DOUBLE": "double",
        "BOOLEAN": "boolean",
        "BYTES": "binary",
        "DATE": "date",
    },
    **{"TIMESTAMP": "timestamp", "INSTANT": "timestamp"},
}


class _Found(NamedTuple):
    """What is known about a topic. form: `schema` in the topic file."""

    form: str
    fields: dict[str, Drafted]
    rows: list[dict[str, Any]]


def draft(settings: LakeSettings) -> str:
    """A topic file for all topics in the namespace of the settings.

    Called by `lakehouse init --from-broker`. Nothing on the broker is changed.

    Raises:
        BrokerError: the broker does not answer.
        SettingsError: the namespace has no topics, or nothing is known about any of them.
    """
    namespace = settings.pulsar_namespace
    with PulsarAdmin(settings.connection) as admin:
        addresses = [
            address
            for address in admin.matching_topics(f"persistent://{namespace}/.*")
            if not OF_THE_SYSTEM.match(address.rpartition("/")[2])
        ]
        schemas = {address: admin.schemas(address) for address in addresses}
        partitions = {address: len(admin.partitions(address)) for address in addresses}
    if not addresses:
        message = f"The namespace {namespace} at {settings.pulsar_admin_url} has no topics."
        raise SettingsError(message, "Set LAKEHOUSE_PULSAR_NAMESPACE to another namespace.")
    parts = [HEAD.format(namespace=namespace, sample=SAMPLE)]
    names = set[str]()
    for address in addresses:
        with Tail(settings, address) as tail:
            messages = tail.newest(SAMPLE)
        name = _free(_table_name(address.rpartition("/")[2]), names)
        names.add(name)
        found = _found(schemas[address], messages)
        parts.append(_declaration(name, address, found, messages, partitions[address]))
    text = "\n".join(parts)
    if not tomllib.loads(text):
        message = f"None of the topics of {namespace} has a message or a schema to draft from."
        raise SettingsError(
            message, "Send some messages first, or use `lakehouse init` without it."
        )
    return text


def _table_name(local: str) -> str:
    plain = re.sub(r"\W+", "_", local, flags=re.ASCII).strip("_")[:60]
    return plain if NAME.fullmatch(plain) else f"t_{plain}"


def _found(schemas: Sequence[dict[str, Any]], messages: Sequence[Received]) -> _Found:
    payloads = [message.payload for message in messages if message.payload is not None]
    newest = max(schemas, key=lambda each: each["version"]) if schemas else None
    if newest and newest["type"] in ("AVRO", "JSON") and (declared := _record(newest["data"])):
        fields = _named(_of_record(declared, (), {}))
        rows = [*_objects(payloads)] if newest["type"] == "JSON" else []
        return _Found("registry", fields, rows)
    if newest and newest["type"] == "PROTOBUF_NATIVE":
        drafted = fields_of_protobuf(newest["data"])
        return _Found("registry", _named((_name(each.place), each) for each in drafted), [])
    if newest and newest["type"] in PRIMITIVES:
        return _Found("registry", _bare(PRIMITIVES[newest["type"]]), [])
    rows = [*_objects(payloads)]
    if rows or not payloads:
        return _Found("json", _named(_of_objects(rows, ())), rows)
    try:
        for payload in payloads:
            payload.decode()
    except UnicodeDecodeError:
        return _Found("bytes", _bare("binary"), [])
    return _Found("string", _bare("string"), [])


def _record(definition: str) -> dict[str, Any] | None:
    """The Avro record that a schema defines; None if it defines none."""
    declared = definition_of(definition)
    return declared if _is_record(declared) and declared.get("name") else None


def _bare(kind: str) -> dict[str, Drafted]:
    key = Drafted("string", True, "the message key", ("key",))
    return {"key": key, "value": Drafted(kind, True, kind, ("value",))}


def _objects(payloads: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for payload in payloads:
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _of_record(
    record: dict[str, Any], within: Place, known: dict[str, Any], *, is_required: bool = True
) -> Iterator[tuple[str, Drafted]]:
    """The fields of an Avro record. Those of records in it are at a path.

    Args:
        record: the definition.
        within: the names that lead to the record.
        known: the definitions of the records around it, by name, and of those before it.
        is_required: whether the record is always there.
    """
    known[record["name"]] = known[record["name"].rpartition(".")[2]] = record
    for each in record.get("fields", []):
        place = (*within, each["name"])
        inner, is_always = one_of(each["type"], known)
        is_always = is_always and is_required
        if _is_record(inner) and len(place) < DEEPEST:
            yield from _of_record(inner, place, known, is_required=is_always)
        else:
            shown = str(inner.get("type") if isinstance(inner, dict) else inner)
            plain = inner.get("logicalType", shown) if isinstance(inner, dict) else shown
            yield _name(place), Drafted(type_of(inner, known), is_always, plain, place)


def _is_record(declared: Any) -> bool:
    return isinstance(declared, dict) and declared.get("type") == "record"


def _of_objects(rows: Sequence[dict[str, Any]], within: Place) -> Iterator[tuple[str, Drafted]]:
    """The fields of a sample of objects. Those of objects in them are at a path."""
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if row.get(name) is not None]
        is_always, place = len(values) == len(rows), (*within, name)
        types = {type(value) for value in values}
        if types == {dict} and len(place) < DEEPEST and any(values):
            for inner, each in _of_objects(values, place):
                yield inner, each._replace(is_required=each.is_required and is_always)
        else:
            shown = " or ".join(sorted(kind.__name__ for kind in types)) or "always null"
            yield _name(place), Drafted(_of_values(name, values), is_always, shown, place)


def _of_values(name: str, values: Sequence[Any]) -> str | None:
    """The type of values that are not null; None if none fits."""
    types = {type(value) for value in values}
    if types == {list}:
        elements = [each for value in values for each in value if each is not None]
        return checked(f"array<{_of_values(name, elements)}>")
    if types == {dict}:
        names = dict.fromkeys(name for value in values for name in value)
        members = {n: [x[n] for x in values if x.get(n) is not None] for n in names}
        return struct_of({n: _of_values(n, found) for n, found in members.items()})
    return _kind(name, values, types)


def _kind(name: str, values: Sequence[Any], types: set[type]) -> str | None:
    if types == {bool}:
        return "boolean"
    if types == {int}:
        is_time = TIME_NAME.search(name) and all(value in MILLISECONDS for value in values)
        return "timestamp_ms" if is_time else "long"
    if types and types <= {int, float}:
        return "double"
    if types != {str}:
        return None
    if all(DATE.fullmatch(value) for value in values):
        return "date"
    return "timestamp" if all(map(_is_instant, values)) else "string"


def _is_instant(text: str) -> bool:
    try:
        dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return False
    return "T" in text


def _declaration(
    name: str, address: str, found: _Found, messages: Sequence[Received], partitions: int
) -> str:
    """The declaration of a topic. If it would be refused, all of its lines are comments."""
    usable, notes = _usable(found.fields)
    key, why_key = _key(usable, found, messages)
    kind, why_kind = _changes(found, key, messages)
    local = address.rpartition("/")[2]
    lines = [f"[topics.{name}]"]
    lines += [f"topic = {json.dumps(local, ensure_ascii=False)}"] if local != name else []
    lines += [f'kind = "{kind}"    # {why_kind}', f"key = {json.dumps([key])}    # {why_key}"]
    lines += [f'schema = "{found.form}"'] if found.form != "json" else []
    times = [n for n, f in usable.items() if f.kind in ("timestamp", "timestamp_ms")]
    times = [each for each in times if usable[each].is_required]
    lines += [f'event_time = "{times[0]}"'] if times and kind == "events" else []
    lines += [f"partitions = {partitions}"] if partitions > 1 else []
    lines += ["", f"[topics.{name}.fields]"]
    if key not in usable:
        lines.append(f'{key} = {{ type = "string", from_message = "key" }}')
    for each, field in usable.items():
        plain = f'"{field.kind}"'
        optional = f"{{ type = {plain}, required = false }}"
        is_required = field.is_required or each == key
        if field.place == (each,):
            lines.append(f"{each} = {plain if is_required else optional}")
        else:
            path = json.dumps(_path(field.place), ensure_ascii=False)
            rest = "" if is_required else ", required = false"
            lines.append(f"{each} = {{ type = {plain}, path = {path}{rest} }}")
    lines += [f"# {_plain(note)}" for note in notes]
    text = "\n".join(lines) + "\n"
    if refused := _refusal(text):
        why = f"# Not declared, because {_plain(refused)}.\n"
        return why + re.sub("^", "# ", text, flags=re.MULTILINE)
    return text


def _plain(text: str) -> str:
    """A text for a comment of TOML, which has neither line breaks nor control characters."""
    return re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]", "?", text)


def _name(place: Place) -> str:
    plain = re.sub(r"\W+", "_", "_".join(place), flags=re.ASCII).strip("_")
    return plain[:60] or "_"


def _named(fields: Iterable[tuple[str, Drafted]]) -> dict[str, Drafted]:
    """The fields by their names. One whose name is taken gets a number."""
    found: dict[str, Drafted] = {}
    for name, field in fields:
        found[_free(name, found)] = field
    return found


def _free(name: str, taken: Container[str]) -> str:
    """A name that is not taken: the name itself, or the name with a number."""
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(own for own in itertools.chain([name], numbered) if own not in taken)


def _path(place: Place) -> str | list[str]:
    return [*place] if any("." in name for name in place) else ".".join(place)


def _value(row: Any, field: Drafted) -> Any:
    """The value of a field in an object of the sample."""
    for name in field.place:
        row = row.get(name) if isinstance(row, dict) else None
    return row


def _usable(fields: dict[str, Drafted]) -> tuple[dict[str, Drafted], list[str]]:
    """The fields that a topic file can declare, and a note about each other one."""
    usable: dict[str, Drafted] = {}
    notes, taken = [], set[str]()
    for name, field in fields.items():
        column = snake_case(name)
        if field.kind is None:
            shown = ".".join(field.place)
            notes.append(f"{shown}: its values are {field.shown}, for which there is no type.")
        elif not NAME.fullmatch(name) or UNREADABLE.search("".join(field.place)):
            notes.append(f"{json.dumps(name)}: a field cannot have this name.")
        elif column in OWN_COLUMNS or column in taken:
            notes.append(f"{name}: the column {column} is taken.")
        else:
            usable[name] = field
            taken.add(column)
    return usable, notes


def _key(
    fields: dict[str, Drafted], found: _Found, messages: Sequence[Received]
) -> tuple[str, str]:
    """The field that identifies a message, and why it was chosen."""
    if found.form in ("string", "bytes") or {*fields} == {"key", "value"}:
        return "key", "the message key"
    exact = [n for n, f in fields.items() if f.is_required and f.kind in ("int", "long", "string")]
    keyed = [message.key for message in messages if message.payload is not None]
    if len(found.rows) == len(keyed) and any(keyed):
        for name in exact:
            if all(
                str(_value(row, fields[name])) == key
                for row, key in zip(found.rows, keyed, strict=True)
            ):
                return name, "equal to the message key in the sample"
    if keyed and all(keyed) and found.form == "json" and "message_key" not in fields:
        return "message_key", "no field is equal to the message key in the sample"
    named = sorted(exact, key=lambda name: (name.lower() != "id", not name.lower().endswith("id")))
    return (named or [*fields, "key"])[0], "a guess from the names"


def _changes(found: _Found, key: str, messages: Sequence[Received]) -> tuple[str, str]:
    """Whether a topic is a changelog, and why."""
    if any(message.payload is None for message in messages):
        return "changelog", "it has messages without a payload"
    field = found.fields.get(key)
    keys = [str(_value(row, field)) for row in found.rows] if field else []
    if not keys:
        keys = [message.key or "" for message in messages]
    if len({*keys}) < len(keys):
        return "changelog", "keys come more than once in the sample"
    return "events", "each key comes once in the sample" if keys else "a guess, without messages"


def _refusal(text: str) -> str | None:
    try:
        TopicFile.model_validate(tomllib.loads(text))
    except ValidationError as error:
        return error.errors()[0]["msg"].removeprefix("Value error, ")
    return None
