"""The settings of a lakehouse, and the secrets that they name."""
