"""The places of tables and keys in a TOML file: the lines that they are written in.

The standard library's reader reports no lines, and messages without them send people searching.
This module reads headers and keys alone, and knows nothing of values except where long texts end. A
place that it does not find has no line, which only makes a message shorter.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.base.values import ConfigError, KnobError

Path = tuple[str | int, ...]

_HEADER: Final = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?")
_NAME: Final = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_KEY: Final = re.compile(rf"\s*((?:{_NAME.pattern})(?:\s*\.\s*(?:{_NAME.pattern}))*)\s*=")
_LONG: Final = re.compile(r'"""|\'\'\'')


def find_places(text: str) -> dict[Path, int]:
    """Return the lines, from 1, of all tables and keys: `("pool", 0, "window", 1, "from")`.

    Tables of a list have their number, from 0, as in tomllib's result.
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
    """Return a table's path: a list on the way to it stands for its last row."""
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


def at_line(places: Mapping[Path, int], place: Path) -> str:
    """Return `line 12: `, if the line is known."""
    line = places.get(place)
    return f"line {line}: " if line is not None else ""


def find_key(table: Mapping[str, Any], text: str) -> Path:
    """Return the key of a table that a message names, and the one below it; empty if it names none.

    A KnobError names its key before it says anything else: so the first name is meant.
    """
    found = [(match.start(), key) for key in table if (match := _search(key, text))]
    if not found:
        return ()
    at, key = min(found)
    below = table[key]
    rest = text[at + len(key) :]
    if isinstance(below, Mapping) and rest.startswith((".", ": ")):
        return (key, *find_key(below, rest))
    return (key,)


def _search(key: str, text: str) -> re.Match[str] | None:
    return re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", text) if key else None


@dataclass(frozen=True, slots=True)
class Passage:
    """A table of a file, for messages about it.

    Attributes:
        table: its content.
        named: its name for people, as in "[site]".
        path: its path in tomllib's result for the file.
        places: the lines of everything.
    """

    table: dict[str, Any]
    named: str
    path: Path
    places: Mapping[Path, int]

    def part(self, key: str, named: str) -> "Passage":
        """Return the table at a key; an empty one if missing. ConfigError if it is no table."""
        found = Passage(self.table.get(key, {}), named, (*self.path, key), self.places)
        if not isinstance(found.table, dict):
            raise replace(found, table={}).error("must be a table")
        return found

    def rows(self, key: str, named: str) -> list["Passage"]:
        """Return the tables of a list, [[key]]; none if missing. ConfigError if it is no list."""
        rows, path = self.table.get(key, []), (*self.path, key)
        if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
            text = "must be an array of tables, written with two brackets"
            raise Passage({}, f"[[{key}]]", path, self.places).error(text)
        return [Passage(each, named, (*path, at), self.places) for at, each in enumerate(rows)]

    def expect(self, allowed: Collection[str]) -> None:
        """Refuse unknown keys."""
        for key in self.table:
            if key not in allowed:
                raise self.error(f"unknown key {key!r}; known keys: {', '.join(sorted(allowed))}")

    def error(self, text: str) -> ConfigError:
        """Return an error with the line of the key that the text names; else with the table's."""
        path = (*self.path, *find_key(self.table, text))
        while path and path not in self.places:
            path = path[:-1]
        return ConfigError(f"{at_line(self.places, path)}{self.named} {text}")

    @contextmanager
    def about(self) -> Iterator[None]:
        """Add the place to a KnobError raised inside."""
        try:
            yield
        except KnobError as error:
            raise self.error(str(error)) from None
