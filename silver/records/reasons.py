"""The reasons to reject a record, as stored in `silver.quarantine`. The first that applies wins."""

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from lake.topics.nested import shown
from lake.topics.topic import Topic
from silver.contract.columns import PRESENT
from silver.records.parse import (
    CORRUPT,
    UPSERTS,
    as_sent,
    has_key_outside,
    is_corrupt,
    is_of_another_type,
    is_whole,
    label_of,
    members,
    misfit_of,
    no_objects,
    value,
)


def reason(topic: Topic) -> Column:
    """The reason to reject a message with the columns of `parse.steps`; NULL if it is good."""
    reasons = F.when(F.col("_empty"), _reason_of_no_payload(topic))
    reasons = reasons.when(F.col("_read.problem").isNotNull(), F.col("_read.problem"))
    reasons = _envelope_reasons(reasons, topic)
    reasons = reasons.when(_is_malformed(topic), F.lit("payload is not a JSON object"))
    reasons = reasons.when(_has_more(topic), F.lit("payload has more text after the JSON object"))
    for place, is_none in no_objects(topic).items():
        reasons = reasons.when(~F.col("_empty") & is_none, F.lit(f"'{shown(place)}' is no object"))
    for name, spec in topic.fields.items():
        if not spec.is_computed:  # `computed.py` has the reasons of the others
            reasons = _field_reasons(reasons, topic, name)
    if topic.envelope:  # the side that is not used may have any form
        return reasons
    twice = F.lit("a field is in the payload twice, and one of its values has the wrong type")
    return reasons.when(~F.col("_empty") & is_corrupt(topic), twice)


def _reason_of_no_payload(topic: Topic) -> Column:
    if topic.kind == "events" or topic.delete == "never":
        return F.lit("payload is empty")
    if topic.sequence and not topic.envelope:
        return F.lit("payload is empty, so it has no sequence")
    return F.when(
        _is_keyless(topic),
        F.lit("payload is empty and the message key is not a key of this topic"),
    )


def _is_keyless(topic: Topic) -> Column:
    return reduce(Column.__or__, [value(topic, name).isNull() for name in topic.key])


def _envelope_reasons(reasons: Column, topic: Topic) -> Column:
    if not topic.envelope:
        return reasons
    op, payload = F.col("_parsed.op"), ~F.col("_empty")
    broken = F.col("_parsed").isNull() | (F.col(f"_parsed.{CORRUPT}").isNotNull() & op.isNull())
    reasons = reasons.when(payload & broken, F.lit("payload is not a JSON object"))
    reasons = reasons.when(payload & op.isNull(), F.lit("the envelope has no op"))
    unknown = F.concat(F.lit("the envelope has an unknown op: "), F.substring(op, 1, 40))
    reasons = reasons.when(payload & ~op.isin(*UPSERTS, "d", "t"), unknown)
    side = F.when(op == "d", F.lit("before")).otherwise(F.lit("after"))
    nothing = F.concat(F.lit("the envelope has no row in '"), side, F.lit("'"))
    return reasons.when(payload & F.col("_json").isNull(), nothing)


def _is_malformed(topic: Topic) -> Column:
    nothing = reduce(
        Column.__and__, [F.col("_text").getField(name).isNull() for name in members(topic)]
    )
    nothing = nothing & is_corrupt(topic)
    return F.col("_odd") & (
        F.col("_text").isNull() | F.col(f"_text.{CORRUPT}").isNotNull() | nothing
    )


def _has_more(topic: Topic) -> Column:
    """Whether something follows the JSON object. Spark's parser ignores it silently.

    The whole text is read again only if its first `}` is not its end. In a flat object, it is.
    """
    if topic.format not in ("json", "registry"):
        return F.lit(False)
    text = F.col("_read.json")
    goes_on = F.instr(text, "}") < F.length(F.rtrim(text))
    if topic.is_nested:
        goes_on = ~is_whole(topic)
    objects = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    # The count misses what follows a `]`, and the check below misses what follows a `}`.
    within = F.concat(F.lit('{"payload":'), text, F.lit(',"end":0}'))
    closes = F.contains(text, F.lit("]")) & F.get_json_object(within, "$.end").isNull()
    return goes_on & ((F.coalesce(objects, F.lit(0)) != 1) | closes)


def _field_reasons(reasons: Column, topic: Topic, name: str) -> Column:
    spec, payload = topic.fields[name], ~F.col("_empty")
    row = payload & ~F.col("_truncates")
    expected = row & ~F.col("_deletes")  # for a delete, the key is enough
    if name in topic.sequence:
        expected = payload
    elif name in topic.key:
        expected = row & ~has_key_outside(topic)
    elif topic.merges_fields:
        expected = expected & F.array_contains(PRESENT, name)
    if name in topic.key and topic.format != "json":
        outside = payload & has_key_outside(topic)
        form = "|".join(topic.key_in_message_key)
        parts = F.lit(f"the message key does not have the form '{form}'")
        reasons = reasons.when(outside & F.col("_key").isNull(), parts)
        no_key = F.lit(f"part '{name}' of the message key is not of type {spec.type}")
        reasons = reasons.when(outside & value(topic, name).isNull(), no_key)
    wrong_type = payload & is_of_another_type(topic, name)
    label = label_of(topic, name)
    why: Column = F.lit(f"field '{label}' is not of type {spec.type}")
    if not spec.kind.is_scalar:
        where = F.concat(F.lit(": "), misfit_of(topic, name))
        why = F.concat(why, F.coalesce(where, F.lit("")))
    reasons = reasons.when(wrong_type, why)
    if spec.required:
        missing = expected & as_sent(topic, name).isNull()
        reasons = reasons.when(missing, F.lit(f"field '{name}' is missing"))
    return reasons
