"""Reads the range of a task, message by message, and accounts for every entry in it."""
