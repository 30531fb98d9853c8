"""`lakehouse report`: one HTML page about the lake, which can be opened without a network.

`snapshot` reads the tables. `overview` and the exposures of the dbt project (`declared`) choose
what is shown, `blocks` and `charts` build it, and `page` writes it.
"""

from lakehouse.report.page import write_report

__all__ = ["write_report"]
