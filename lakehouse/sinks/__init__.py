"""Runs the sinks of the topic file: tables whose changes go to topics and to PostgreSQL."""
