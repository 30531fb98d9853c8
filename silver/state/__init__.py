"""Changelogs applied to state: merges, partial updates, versions, merge chains, tombstones."""
