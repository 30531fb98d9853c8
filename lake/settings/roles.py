"""The roles of users of the SQL endpoint. Apart from the settings, which are slow to import."""

from typing import Literal

LimitedRole = Literal["reader", "analyst"]
Role = Literal["reader", "analyst", "owner"]
