"""All mistakes of a configuration file in one run, though its readers stop at the first one.

Each mistake is removed from the document, and the rest is read again: a wrong key first, and its
table where that does not help. An error that only follows from a removed part is not reported.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from federation.clocks import UtcS
from gateway.base.toml_lines import Path as Place
from gateway.base.values import ConfigError, SettingError
from gateway.config.pools import BUILT_IN, GridKinds
from gateway.config.site import ConfigFile, SiteConfig, check, parse, read_file

T = TypeVar("T")
MISTAKES_MAX: Final = 200  # that are reported
RULE_MISTAKES_MAX: Final = 20  # likewise, where a gateway looks for them while it works
_LINE: Final = re.compile(r"line ([0-9]+): ")
_SYNTAX: Final = re.compile(r"\(at line ([0-9]+), column [0-9]+\)")
_QUOTED: Final = re.compile(r"'([^']*)'")
_UNKNOWN_KEY: Final = re.compile(r"unknown key '([^']+)'")
_UNKNOWN: Final = re.compile(r"unknown key '([^']+)' \(did you mean '([^']+)'\?\)")
_MEANT: Final = re.compile(r"did you mean '([^']+)'")
_KNOWN: Final = re.compile(r"; known (?:keys|\w+s): .*", re.DOTALL)
_WORD: Final = re.compile(r"[\w-]+")
_NEEDS: Final = re.compile(r"\bneeds ([\w-]+)")
_NOT_FOUND: Final = re.compile(
    r"not found|no window|no such share|no pool here is in|not known here"
)
_MISSING: Final = re.compile(r"\b(\w+) is missing")
_CLASH: Final = re.compile(r"of the same priority")
_RARE: Final = re.compile(r"named nowhere else|is in no group")
# Tables of a pool of any kind; the others belong to its kind.
_OF_ANY_KIND: Final = frozenset({"tags", "carbon", "tariff", "environments", "scale"})
_SOMEBODY: Final = "?"
# The value that replaces a wrong one, where without one its table could not be read.
_SIZE: Final = "1 slot-h"  # of a budget: without a currency, which other tables would need
_OF_A_SIZE: Final = re.compile(r"\[\[budget\]\].*?: (amount|slice)(?:: | is '| must )")
_OF_A_CLAIM: Final = re.compile(r"\bclaims\[([0-9]+)\](?:\.(\w+)|: unknown key '([^']+)')?")
_ANY_GRID: Final = "processes"  # its own table may be missing
_LOCAL: Final = "local"
_OF_LOCAL: Final = frozenset({"slots", "user", "environments"})  # keys of such a pool alone
_ONLY_LOCAL: Final = "is only for local pools"


@dataclass(frozen=True, slots=True)
class Mistake:
    """An error of the readers.

    Attributes:
        line: in the file, from 1; 0: unknown.
        text: what is wrong, without file and line.
    """

    line: int
    text: str


@dataclass(slots=True)
class Removed:
    """The parts of a document that could not be read.

    Attributes:
        keys: the places of removed keys and tables in what is left of the document, each with the
            names of keys that it stands for.
        words: the names of all keys and tables that were removed, wherever they stood.
        names: what they define, for other tables to refer to.
        texts: all texts in them.
        nameless: the lists, as "pool" or "window", of which a row without a name was removed.
        shortened: the places of all lists that have lost a row.
    """

    keys: dict[Place, frozenset[str]] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    nameless: set[str] = field(default_factory=set)
    shortened: set[Place] = field(default_factory=set)

    def explains(self, text: str, place: Place, table: Place) -> bool:
        """Whether an error may only follow from a removed part.

        Args:
            text: of the error, without file and line.
            place: what it is about: a key that is there, or else a table.
            table: the table that it is about.
        """
        text = _KNOWN.sub("", text)
        for pattern, found in ((_NOT_FOUND, self.names), (_RARE, self.texts)):
            if pattern.search(text) and not found.isdisjoint(_QUOTED.findall(text)):
                return True
        if _NOT_FOUND.search(text) and not self.nameless.isdisjoint(_WORD.findall(text)):
            return True  # it may be the name of the one that has none
        missing = _MISSING.search(text)
        if missing is not None and (*table, missing[1]) in self.shortened:
            return True  # it was there, and wrong
        if _CLASH.search(text) and any(each[:3] == table[:3] for each in self.keys):
            return True  # a window of the pool has lost its hours
        said = set(_WORD.findall(text))
        needed = set(_NEEDS.findall(text))
        for removed, names in self.keys.items():
            # The name of a key such as `to` is a word of other sentences as well.
            plain = {each for each in names & said if "_" in each}
            is_here = removed[:-1] == table[: len(removed) - 1]
            if plain or (is_here and (names & needed or (place == table and names & said))):
                return True
        return False

    def renumber(self, row: Place) -> None:
        """Let the places fit a document whose list has lost a row."""
        self.keys = _renumbered(self.keys, row)


@dataclass(frozen=True, slots=True)
class FileReading:
    """A configuration file, as far as it could be read.

    Attributes:
        config: without the parts that are wrong; None if nothing could be read.
        mistakes: in the order of their lines.
        removed: the parts that are wrong.
    """

    config: SiteConfig | None
    mistakes: tuple[Mistake, ...]
    removed: Removed


def read_whole(path: str, kinds: GridKinds, utc_s: UtcS) -> FileReading:
    """Read and check a configuration file, and collect its mistakes. Raises nothing.

    `utc_s` is now, as for `gateway.config.site.check`.
    """
    try:
        file = read_file(path)
    except ConfigError as error:
        return FileReading(None, (_mistake(path, str(error)),), Removed())
    return _Reader(file, kinds, utc_s).run()


def mistakes_in(file: ConfigFile, kinds: GridKinds, utc_s: UtcS) -> list[str]:
    """Return the mistakes of a document that was made of rules, and has no lines of its own.

    At most RULE_MISTAKES_MAX: each costs a reading of the whole document.
    """
    numbered = {place: at for at, place in enumerate(_places(file.table), 1)}
    reader = _Reader(replace(file, places=numbered), kinds, utc_s, RULE_MISTAKES_MAX)
    return [each.text for each in reader.run().mistakes]


def _places(value: Any, above: Place = ()) -> Iterator[Place]:
    """Yield the places of everything in a document."""
    if isinstance(value, dict):
        items: Iterable[tuple[str | int, Any]] = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return
    for key, below in items:
        yield (*above, key)
        yield from _places(below, (*above, key))


class _Reader:
    """Reads a document again and again, each time without the part that was wrong."""

    def __init__(
        self, file: ConfigFile, kinds: GridKinds, utc_s: UtcS, most: int = MISTAKES_MAX
    ) -> None:
        self._most = most
        self._file = replace(file, table=deepcopy(file.table))
        self._kinds = kinds
        self._utc_s = utc_s
        self._mistakes: list[Mistake] = []
        self._removed = Removed()

    def run(self) -> FileReading:
        """Return the mistakes, and what is left."""
        config: SiteConfig | None = None
        while len(self._mistakes) < self._most:
            try:
                config = check(parse(self._file, self._kinds), self._utc_s)
                break
            except (ConfigError, SettingError) as error:
                found = _mistake(self._file.path, str(error))
            if not self._handle(found):
                break
        mistakes = tuple(sorted(self._mistakes, key=lambda each: each.line))
        return FileReading(config, mistakes, self._removed)

    def _handle(self, found: Mistake) -> bool:
        """Record a mistake unless it follows from another; remove its cause. False: there is none.

        A key is removed alone, if another error may follow from that its table is removed next.
        """
        place = self._place(found.line)
        unknown = _UNKNOWN_KEY.search(found.text)
        if unknown is not None and place[-2:] == (unknown[1], 0):
            place = place[:-1]  # all tables of a list, which has no line of its own
        table = place if isinstance(_at(self._file.table, place), dict) else place[:-1]
        if not self._removed.explains(found.text, place, table):
            self._mistakes.append(found)
        if not place:
            return False
        if self._rename(place, found.text) or self._name_kind(place, found.text):
            return True
        if self._replace_size(place, found.text) or self._mend_list(place, found.text):
            return True
        self._remove(place, found.text)
        if place[0] == "pool" and len(place) == 3 and place[-1] in ("kind", "scale"):
            self._replace_kind(place[:2])
        if place[0] == "budget" and place[-1] == "owner":
            row = _at(self._file.table, place[:2])
            row.pop("slice", None)
            row["amount"] = _SIZE  # read as one of this site, which has no slice
        return True

    def _rename(self, place: Place, text: str) -> bool:
        """Read a misspelt key as the one that is meant, if that is missing. False: it is not."""
        *above, key = place
        meant, table = _UNKNOWN.search(text), _at(self._file.table, tuple(above))
        if meant is None or meant[1] != key:
            return False
        name = meant[2]
        if name in table:
            if not above:
                self._remove_tables_after(name, str(key))
            return False
        table[name] = table.pop(key)
        renamed = (*above, name)
        places = {
            renamed + each[len(place) :] if each[: len(place)] == place else each: line
            for each, line in self._file.places.items()
        }
        self._file = replace(self._file, places=places)
        return True

    def _remove_tables_after(self, name: str, misspelt: str) -> None:
        """Remove the tables that belong to a row of [[misspelt]], and so not to one of [[name]].

        TOML gives a [name.table] to the last [[name]] above it.
        """
        places = dict(self._file.places)
        first = min(line for place, line in places.items() if place[:1] == (misspelt,))
        for place, line in places.items():
            is_table = len(place) > 2 and isinstance(_at(self._file.table, place), dict)
            is_later = places.get(place[:2], first) < first < line
            if place[:1] == (name,) and is_table and is_later:
                self._remove(place, "")

    def _name_kind(self, place: Place, text: str) -> bool:
        """Read a pool without a kind as a local one, if it has keys of such. False: it has not."""
        pool = _at(self._file.table, place[:2])
        if _ONLY_LOCAL not in text or not isinstance(pool, dict) or "kind" in pool:
            return False
        pool["kind"] = _LOCAL
        return True

    def _replace_kind(self, table: Place) -> None:
        """Read a pool as one of a kind that needs no table of its own, and no more than it has."""
        pool = _at(self._file.table, table)
        for key in [each for each, value in pool.items() if isinstance(value, dict)]:
            if key not in _OF_ANY_KIND:
                self._remove((*table, key), "")
        other = BUILT_IN[-1] if _OF_LOCAL.isdisjoint(pool) else _LOCAL
        pool["kind"] = _ANY_GRID if "scale" in pool else other

    def _replace_size(self, place: Place, text: str) -> bool:
        """Read a budget with a wrong size as one with another. False: that is not its mistake."""
        size = _OF_A_SIZE.match(text)
        row = _at(self._file.table, place[:2])
        if size is None or place[0] != "budget" or not isinstance(row, dict):
            return False
        if row.get(size[1]) == _SIZE:
            return False
        row[size[1]] = _SIZE
        self._removed.words |= {"budget", size[1]}
        return True

    def _mend_list(self, place: Place, text: str) -> bool:
        """Read a list without the texts, or the part of a claim, that are wrong. False: not one."""
        value = _at(self._file.table, place)
        if not isinstance(value, list):
            return False
        claim = _OF_A_CLAIM.search(text)
        if place[-1] == "claims" and claim is not None:
            return self._mend_claim(value, int(claim[1]), claim[2] or claim[3])
        quoted = set(_QUOTED.findall(text))
        wrong = [each for each in value if isinstance(each, str) and each in quoted]
        if not wrong or len(wrong) == len(value):
            return False
        value[:] = [each for each in value if each not in wrong]
        self._removed.words |= {each for each in place if isinstance(each, str)}
        self._removed.names.update(wrong)
        self._removed.texts |= set(_texts(wrong))
        return True

    def _mend_claim(self, claims: list[Any], number: int, key: str | None) -> bool:
        """Read a claim without a key, or, if it has no party, as that of a user without a name."""
        claim, nobody = claims[number - 1], f"{_SOMEBODY}{number}"
        stand_in = {"who": f"user:{nobody}"}
        if claim == stand_in:
            return False
        self._removed.words |= {"claims", *([key] if key else [])}
        self._removed.texts |= set(_texts(claim)) | {nobody}
        self._removed.names.add(nobody)
        if isinstance(claim, dict) and key in claim and key != "who":
            del claim[key]
        elif isinstance(claim, dict) and key == "who" and claim.get(key) != stand_in["who"]:
            claim["who"] = stand_in["who"]
        else:
            claims[number - 1] = stand_in
        return True

    def _place(self, line: int) -> Place:
        """Return the place of what a line begins: empty where nothing is left of it."""
        for place, at in self._file.places.items():
            if at == line:
                while place and _at(self._file.table, place) is None:
                    place = place[:-1]
                return place
        return ()

    def _remove(self, place: Place, text: str) -> None:
        above = _at(self._file.table, place[:-1])
        removed = above[place[-1]]
        if place[0] == "groups" and len(place) > 1 and removed != [_SOMEBODY]:
            above[place[-1]] = [_SOMEBODY]  # the group exists, for the tables that name it
        else:
            del above[place[-1]]
        names = {each for each in place if isinstance(each, str)}
        self._removed.words |= names | set(_MEANT.findall(text))
        self._removed.names |= set(_defined(removed)) | names
        self._removed.texts |= set(_texts(removed)) | names
        if isinstance(place[-1], int):
            if isinstance(removed, dict) and not isinstance(removed.get("name"), str):
                self._removed.nameless.add(str(place[-2]))
            self._removed.shortened.add(place[:-1])
            self._removed.renumber(place)
            self._file = replace(self._file, places=_renumbered(self._file.places, place))
        else:
            meant = {str(place[-1]), *_MEANT.findall(text)}
            self._removed.keys[place] = frozenset(meant)


def _mistake(path: str, text: str) -> Mistake:
    """Return the error of a reader, whose text begins with file and line."""
    for each in (path, str(Path(path).absolute())):
        text = text.removeprefix(f"{each}: ")
    line = _LINE.match(text)
    if line is not None:
        return Mistake(int(line[1]), text[line.end() :])
    syntax = _SYNTAX.search(text)
    return Mistake(int(syntax[1]) if syntax is not None else 0, text)


def _at(document: Any, place: Place) -> Any:
    """Return the value at a place; None where there is nothing."""
    for key in place:
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _defined(value: Any) -> Iterator[str]:
    """Yield the names that a removed part gives to something: its keys, and values of `name`."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield str(key)
            if key == "name" and isinstance(below, str):
                yield below
            yield from _defined(below)
    elif isinstance(value, list):
        for below in value:
            yield from _defined(below)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of a value and its keys; of a party, as in "user:ann", its name too."""
    if isinstance(value, str):
        yield value
        yield value.partition(":")[2]
    elif isinstance(value, dict):
        for key, below in value.items():
            yield str(key)
            yield from _texts(below)
    elif isinstance(value, list):
        for below in value:
            yield from _texts(below)


def _renumbered(places: Mapping[Place, T], removed: Place) -> dict[Place, T]:
    """Return what is known of places, without a row of a list: those after it move up by one."""
    *above, number = removed
    length = len(above)
    found: dict[Place, T] = {}
    for place, line in places.items():
        at = place[length] if place[:length] == tuple(above) and len(place) > length else None
        if not isinstance(at, int) or not isinstance(number, int) or at < number:
            found[place] = line
        elif at > number:
            found[(*above, at - 1, *place[length + 1 :])] = line
    return found
