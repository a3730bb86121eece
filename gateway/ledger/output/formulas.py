"""Texts in CSV cells, escaped so that a spreadsheet does not take them for formulas. Pure."""

from typing import Final

FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def cell(text: str) -> str:
    """Return a text escaped for a cell.

    An apostrophe goes before a formula's start, and before an apostrophe: two texts that differ
    remain different, and `uncell` can restore the original.
    """
    return f"'{text}" if text.startswith((*FORMULA_STARTS, "'")) else text


def uncell(text: str) -> str:
    """Return the original text of a `cell`, for readers of such a file."""
    return text.removeprefix("'")
