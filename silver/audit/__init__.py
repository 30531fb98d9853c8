"""Whether every batch balances, and which table versions belong together."""
