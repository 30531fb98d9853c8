"""Streaming queries: checkpoints, restarts, and commands that run until they are stopped."""
