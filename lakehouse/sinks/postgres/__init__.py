"""Writes the rows of a sink to a table of PostgreSQL. Nothing here reads a lake."""
