"""Findings about a configuration, each with its file and line. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from gateway.base.toml_lines import Path as Place
from gateway.base.toml_lines import line_about


class Level(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or soon will be.

    Attributes:
        level: whether it has to be changed.
        code: for scripts to compare, as in "file-missing".
        subject: what it is about, as in "[site] tls_certificate_file".
        text: what is wrong, and what to do.
        file: the configuration's path; empty without one.
        line: in that file, from 1; 0: unknown.
        stops: whether a gateway can't start with it.
    """

    level: Level
    code: str
    subject: str
    text: str
    file: str = ""
    line: int = 0
    stops: bool = False

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        line = f"line {self.line}: " if self.line else ""
        return f"{where}{line}{self.subject}: {self.text}"

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


@dataclass(slots=True)
class FindingList:
    """The findings about one configuration.

    Attributes:
        file: its path; empty without one.
        places: the lines of everything in it.
        found: in the order in which they were made.
    """

    file: str = ""
    places: Mapping[Place, int] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found)

    @property
    def errors(self) -> list[Finding]:
        """The errors."""
        return [each for each in self.found if each.level is Level.ERROR]

    @property
    def warnings(self) -> list[Finding]:
        """The warnings."""
        return [each for each in self.found if each.level is Level.WARNING]

    def error(
        self, code: str, subject: str, text: str, place: Place = (), *, stops: bool = False
    ) -> None:
        """Add an error about a place in the file."""
        self._add(Level.ERROR, code, subject, text, place, stops=stops)

    def warn(self, code: str, subject: str, text: str, place: Place = ()) -> None:
        """Add a warning about a place in the file."""
        self._add(Level.WARNING, code, subject, text, place)

    def _add(
        self,
        level: Level,
        code: str,
        subject: str,
        text: str,
        place: Place,
        *,
        stops: bool = False,
    ) -> None:
        line = line_about(self.places, place, ()).removeprefix("line ").removesuffix(": ")
        number = int(line) if line else 0
        self.found.append(Finding(level, code, subject, text, self.file, number, stops))
