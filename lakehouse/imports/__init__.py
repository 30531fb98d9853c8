"""Runs the imports of the topic file: tables of PostgreSQL whose changes go to Pulsar topics."""
