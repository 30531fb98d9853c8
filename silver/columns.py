"""Columns that decoded rows have beside those of the fields, as no field can be called.

`REASON`: why a record is refused, NULL for a good one. `CAME`: what came, `AS_IT_CAME`. `PRESENT`:
of a partial update, the fields that the message has.
"""

REASON, CAME, PRESENT = "_reason", "_came", "_present"
AS_IT_CAME = ("key", "payload", "event_time", "schema_version")
