"""Where things are written in a TOML file: the line of a table, or of a key in it.

The standard library's reader tells no lines, and messages without them send people searching. This
looks at headers and keys alone, and knows nothing of values but where long texts end; what it does
not find has no line, which only makes a message shorter.
"""

import re
from typing import Final

Path = tuple[str | int, ...]

_HEADER: Final = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?")
_NAME: Final = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_KEY: Final = re.compile(rf"\s*((?:{_NAME.pattern})(?:\s*\.\s*(?:{_NAME.pattern}))*)\s*=")
_LONG: Final = re.compile(r'"""|\'\'\'')


def find_places(text: str) -> dict[Path, int]:
    """The lines, from 1, of all tables and keys: `("pool", 0, "window", 1, "from")`.

    Tables of a list have their number, from 0, as in what tomllib makes of it.
    """
    places: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    inside = ""  # the quotes of a text of several lines
    for number, line in enumerate(text.split("\n"), start=1):
        if inside:
            inside = "" if inside in line else inside
            continue
        header = _HEADER.fullmatch(line)
        if header is not None:
            table = _table(_names(header[2]), header[1] == "[[", counts)
            places.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key is not None:
            places.setdefault((*table, *_names(key[1])), number)
        quotes = _LONG.findall(line)
        inside = quotes[-1] if len(quotes) % 2 else ""
    return places


def _names(text: str) -> list[str]:
    return [each.strip("\"'") for each in _NAME.findall(text)]


def _table(names: list[str], is_row: bool, counts: dict[Path, int]) -> Path:
    """A table's path: what is a list on the way to it stands for its last row."""
    path: Path = ()
    for name in names[:-1]:
        path = (*path, name)
        if path in counts:
            path = (*path, counts[path])
    path = (*path, *names[-1:])
    if is_row:
        counts[path] = counts.get(path, -1) + 1
        path = (*path, counts[path])
    return path
