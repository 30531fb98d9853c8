"""Plans each batch in the process beside the driver: ledgers, limits, tasks and lost messages."""
