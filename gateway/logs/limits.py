"""How much of the output of tasks a site keeps. Pure."""

from dataclasses import dataclass
from typing import Final

from federation.clocks import UtcS

PIECE_BYTES: Final = 64  # a piece's count for a job and the site, beside its text


@dataclass(frozen=True, slots=True)
class LogLimits:
    """The bytes of output that are kept; beyond them the oldest output is dropped.

    Attributes:
        task_bytes: of the text of one task.
        job_bytes: of one job: text, and PIECE_BYTES for each piece.
        site_bytes: of all jobs, likewise; 0: no output is kept, and none is asked of workers.
    """

    task_bytes: int = 64 << 10
    job_bytes: int = 16 << 20
    site_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A piece of output: text that a task wrote to one stream, without a change of it between.

    Attributes:
        number: later pieces of a site have higher numbers.
        at_s: when it arrived at the gateway, UTC.
        stream: federation.messages.printed.STDOUT or STDERR.
    """

    number: int
    at_s: UtcS
    task: int
    stream: int
    text: str


@dataclass(frozen=True, slots=True)
class LogPage:
    """Pieces of a job in the order in which they arrived.

    Attributes:
        more: whether later pieces are there already.
        cut_bytes: of the oldest output that the limits have dropped.
    """

    pieces: list[LogPiece]
    more: bool
    cut_bytes: int


__all__ = ["PIECE_BYTES", "LogLimits", "LogPage", "LogPiece"]
