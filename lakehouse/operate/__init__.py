"""Commands that publish, inspect, save and restore a running lakehouse."""
