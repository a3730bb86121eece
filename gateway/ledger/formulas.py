"""Texts in cells of CSV, which a spreadsheet must not take for formulas. Pure."""

from typing import Final

FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def cell(text: str) -> str:
    """A text for a cell.

    An apostrophe goes before a formula's start, and before an apostrophe: two texts that differ
    stay so, and `uncell` knows what was there.
    """
    return f"'{text}" if text.startswith((*FORMULA_STARTS, "'")) else text


def uncell(text: str) -> str:
    """What `cell` was given, for those who read such a file again."""
    return text.removeprefix("'")
