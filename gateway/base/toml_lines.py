"""The places of tables and keys in a TOML file: the lines that they are written in.

The standard library's reader reports no lines, and messages without them send people searching.
This module reads headers and keys alone, and knows nothing of values except where long texts end. A
place that it does not find has no line, which only makes a message shorter.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from gateway.base.values import ConfigError, SettingError, unknown

Path = tuple[str | int, ...]
T = TypeVar("T")

_HEADER: Final = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?")
_NAME: Final = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_KEY: Final = re.compile(rf"\s*((?:{_NAME.pattern})(?:\s*\.\s*(?:{_NAME.pattern}))*)\s*=")
_UNKNOWN: Final = re.compile(r"unknown key '([^']*)'")
_LONG: Final = re.compile(r'"""|\'\'\'')
_TWICE: Final = re.compile(r"Cannot declare \((.*)\) twice(.*)", re.DOTALL)
_OVERWRITTEN: Final = re.compile(r"\ACannot overwrite a value")
_AT_LINE: Final = re.compile(r"\(at line (\d+), ")
_PART: Final = re.compile(r"'([^']*)'")

KEY_PARTS_MAX: Final = 100
# Possessive, and at the begin of a name alone: a long word is looked at once.
_DEEP_KEY: Final = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{KEY_PARTS_MAX}}}")
# Texts, whose dots join nothing, and comments.
_TEXTS: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' + r"'''.*?'''" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'|#[^\n]*",
    re.DOTALL,
)


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


def line_about(places: Mapping[Path, int], table: Path, key: Path) -> str:
    """Return `line 12: ` of a key of a table; of the nearest place around it that has a line."""
    path = (*table, *key)
    while path:
        for each in (path, (*path, 0)):  # a list of tables has no line but those of its tables
            if each in places:
                return at_line(places, each)
        path = path[:-1]
    return ""


def located(
    places: Mapping[Path, int],
    place: Path,
    table: object,
    named: str,
    read: Callable[[], T],
) -> T:
    """Call the reader of a table; an error gets the line of the key that it begins with.

    Args:
        places: the lines of everything.
        place: the path of the table.
        table: its content.
        named: its name for people, as in "[[budget]] risk".
        read: the reader.

    Raises:
        SettingError: with line and name before its text.
    """
    try:
        return read()
    except (SettingError, ValueError) as error:
        text = str(error)
        key = find_key(table, text) if isinstance(table, Mapping) else ()
        unknown_key = _UNKNOWN.match(text)
        if unknown_key is not None:
            key = (unknown_key[1],)
        elif key and not text.startswith(str(key[0])):
            key = ()  # a word of the sentence
        raise SettingError(f"{line_about(places, place, key)}{named}: {text}") from None


def find_key(table: Mapping[str, Any], text: str) -> Path:
    """Return the key of a table that a message names, and the one below it; empty if it names none.

    A SettingError names its key before it says anything else: so the first name is meant.
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
                raise self.error(unknown(key, allowed))

    def error(self, text: str) -> ConfigError:
        """Return an error with the line of the key that the text names; else with the table's."""
        line = line_about(self.places, self.path, find_key(self.table, text))
        return ConfigError(f"{line}{self.named} {text}")

    @contextmanager
    def about(self) -> Iterator[None]:
        """Add the place to a SettingError raised inside."""
        try:
            yield
        except SettingError as error:
            raise self.error(str(error)) from None


def toml_fault(error: ValueError, toml: str = "") -> str:
    """Return the text of an error of the standard library's reader, with names as files have them.

    The line and column at its end stay; with the `toml` that was read a key there is named.
    """
    text = str(error)
    twice = _TWICE.match(text)
    if twice is not None:
        name = ".".join(_PART.findall(twice[1]))
        return f"the table [{name}] is there twice: put all its keys into one{twice[2]}"
    what, place = "this key or table", _AT_LINE.search(text)
    lines = toml.splitlines()
    if place is not None and int(place[1]) <= len(lines):
        found = _KEY.match(lines[int(place[1]) - 1])
        what = f"the key {found[1]}" if found else what
    return _OVERWRITTEN.sub(f"{what} is there already: remove one of the two", text)


def check_depth(text: str) -> None:
    """Refuse keys of very many parts, as in a.b.c: a reader of TOML takes minutes over them.

    Raises ValueError.
    """
    # A text that ends no line stands for a part of a key: a key may be written in quotes.
    plain = _TEXTS.sub(lambda found: "s" + "\n" * found[0].count("\n"), text)
    deep = _DEEP_KEY.search(plain)
    if deep is not None:
        line = plain.count("\n", 0, deep.start()) + 1
        raise ValueError(f"line {line}: a key of over {KEY_PARTS_MAX} parts, joined by dots")
