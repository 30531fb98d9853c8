"""A Spark data source for Apache Pulsar, usable without the rest of this repository.

Start with `source.py`: register `PulsarDataSource` and use `format("pulsar")`.

- `broker/`: connections to the broker, its admin API and its wire protocol.
- `plan/`: what each batch reads, and whether the broker has dropped anything.
- `read/`: what a task reads, and which entries it must account for.
"""
