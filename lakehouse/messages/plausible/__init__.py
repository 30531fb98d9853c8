"""What generated messages consist of: cells by type, values by name, and keys that match."""
