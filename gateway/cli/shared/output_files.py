"""Files that a command writes: a name that promises another format is refused."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from federation.files import check_format
from federation.pictures.graph_picture import PICTURES

PAGE: Final = {".html": "a page", ".htm": "a page"}
CSV: Final = {".csv": "CSV"}
PARQUET: Final = {".parquet": "Parquet"}
XML: Final = {".xml": "XML"}
TEXT: Final = {".txt": "text"}
SQLITE: Final = {".db": "SQLite", ".sqlite": "SQLite", ".sqlite3": "SQLite"}
__all__ = [
    "CSV",
    "PAGE",
    "PARQUET",
    "PICTURES",
    "SQLITE",
    "TEXT",
    "XML",
    "OutputFile",
    "check_name",
]


class OutputFile(click.Path):
    """The name of a file that is to be written.

    Args:
        written: the endings that are right, each with the name of its format.
    """

    def __init__(self, written: Mapping[str, str]) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._written = written

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Raises click.BadParameter for a name of another format."""
        found = Path(os.fsdecode(super().convert(value, param, ctx)))
        check_name(found, self._written, param)
        return found


def check_name(
    path: Path, written: Mapping[str, str], param: click.Parameter | None = None
) -> None:
    """Raise click.BadParameter for a name that promises another format than is written."""
    try:
        check_format(path, written)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from None
