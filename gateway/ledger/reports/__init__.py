"""Reports: usage, cost, carbon, savings, utilisation and showback as tables of exact numbers.

    question ─► store ─► totals ─► one of tallies, savings, idle ─► ReportTable ─► rendering
                                                            standing ─┘

A report has one row for each combination of its keys and, for money, each currency: amounts of
different currencies are never added. Each usage record is in exactly one row, so that the rows sum
up to the records, to the nano-unit, whatever the keys are. docs/reports.md explains each column.
"""

from gateway.ledger.reports.finality import OpenClaim, claim_of
from gateway.ledger.reports.making import KINDS, UTILISATION, Present, make_report
from gateway.ledger.reports.question import ALL, OURS, UsageQuestion
from gateway.ledger.reports.rendering import NoParquet, named_rows, to_csv, write_parquet
from gateway.ledger.reports.report import Cell, ReportTable

__all__ = [
    "ALL",
    "KINDS",
    "OURS",
    "UTILISATION",
    "Cell",
    "NoParquet",
    "OpenClaim",
    "Present",
    "ReportTable",
    "UsageQuestion",
    "claim_of",
    "make_report",
    "named_rows",
    "to_csv",
    "write_parquet",
]
