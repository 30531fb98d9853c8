"""`lakehouse report`: one HTML page on the lake, to be opened without a network.

`snapshot` reads the tables, `sections` say what is shown of them, `charts` draw, `page` writes.
"""

from lakehouse.report.page import write_report

__all__ = ["write_report"]
