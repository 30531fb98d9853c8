"""Events joined with the state of changelogs."""
