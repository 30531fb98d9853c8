"""The command `lakehouse`, the Spark session and the embedded runtime (broker, SQL endpoint).

Read `cli.py` and `commands/` for the commands; `demo.py` and `up.py` show how the layers are put
together.
"""

DISTRIBUTION = "orders-lakehouse"  # the name under which the package is installed
