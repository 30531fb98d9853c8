"""The command `lakehouse`, the Spark session and the embedded runtime (broker, SQL endpoint).

The commands are in `cli.py` and `commands/`. `demo.py` and `up.py` show how the layers fit
together.
"""
