"""The scopes of objects: the project that has an object, and the site whose work it is for. Pure.

An object of a job of this site is in the scope of its project, under the project's name. An object
of another site's job is in a scope that has that site, too, after a space that no user can write:
so no user here can name its objects, nor they those of a project here that has the same name.
"""

from dataclasses import dataclass
from typing import Final, Self

_OF_A_SITE: Final = "\u00a0@"


@dataclass(frozen=True, slots=True)
class ObjectScope:
    """A scope.

    Attributes:
        project: by the name that it has at its own site.
        sender: the site that sent the job; empty: it is a job of this site.
    """

    project: str
    sender: str = ""

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the text of a scope."""
        project, _, sender = text.partition(_OF_A_SITE)
        return cls(project, sender)

    def __str__(self) -> str:
        return f"{self.project}{_OF_A_SITE}{self.sender}" if self.sender else self.project

    def record_job(self, what: str, hour: str) -> str:
        """Return the `job` of a usage record of bytes: as of tasks, the sender comes first.

        Args:
            what: "held" or "moved".
            hour: of the record, UTC, as "2026-11-28T15".
        """
        return f"{self.sender}:{what}/{hour}" if self.sender else f"{what}/{hour}"
