"""Connections to the broker: settings and secrets, the admin API, and the wire protocol."""
