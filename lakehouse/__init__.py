"""The command `lakehouse`, the Spark session and the embedded runtime (broker, SQL endpoint).

Read `cli.py` for the commands; `demo.py` and `up.py` show how the layers are put together.
"""
