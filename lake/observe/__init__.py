"""Logs, metrics and lineage events."""
