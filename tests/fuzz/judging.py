"""Judges whether a gateway has withstood the messages: facts in, violations out. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from tests.fuzz.tally import Tally

HANG_S: Final = 60.0
# What memory may grow by between the end of the warm-up and the end of the run.
GROWTH: Final = 0.25
GROWTH_BYTES: Final = 48 << 20
THREADS: Final = 16
DESCRIPTORS: Final = 64
LOG_BYTES: Final = 256 << 10
LOG_BYTES_PER_S: Final = 4_000.0  # joins, comings and refusals are told at a bounded pace
FILES: Final = 16
# Lines of a log that nobody but a programmer can do anything about.
FAULT: Final = re.compile(r"fault:|Traceback|Exception|\w+Error\b|unexpected error", re.IGNORECASE)
# These are about what others have said, and may quote an exception's name.
KNOWN: Final = re.compile(
    r"protocol error: (?!.*that this gateway failed to handle)|was refused: "
    r"|passed on an invalid (bulletin|notice): "
)


@dataclass(frozen=True)
class Done:
    """One task of an honest user: its path, its time, and its error."""

    way: str
    took_s: float
    error: str = ""


@dataclass(frozen=True)
class Sample:
    """A gateway's use of its host at one moment."""

    at_s: float
    rss_bytes: int
    threads: int
    descriptors: int
    log_bytes: int
    files: int  # in its folder
    books_bytes: int


@dataclass
class FuzzFacts:
    """The facts of one run."""

    tallies: Mapping[str, Tally] = field(default_factory=dict)  # by role
    done: Sequence[Done] = ()
    after: Sequence[Done] = ()  # of these, those that were sent after the last message
    ways: Sequence[str] = ()  # that honest work was to take
    hanging: Sequence[str] = ()  # what is wrong with futures that were late, by way
    ended: Mapping[str, int] = field(default_factory=dict)  # gateways that ended by themselves
    codes: Mapping[str, int] = field(default_factory=dict)  # how they ended when they were told to
    audits: Mapping[str, str] = field(default_factory=dict)  # what is wrong with books, by site
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    warm_s: float = 0.0  # when the warm-up was over, and …
    logs: Mapping[str, str] = field(default_factory=dict)


def measured(samples: Sequence[Sample], warm_s: float) -> tuple[Sample, Sample] | None:
    """The first sample after the warm-up, and the last; None when there are not two."""
    warm = [each for each in samples if each.at_s >= warm_s]
    return (warm[0], warm[-1]) if len(warm) > 1 else None


def _gateways_go_on(facts: FuzzFacts) -> list[str]:
    return [
        *(f"{site} ended by itself, with code {code}" for site, code in facts.ended.items()),
        *(f"{site} ended with code {code}" for site, code in facts.codes.items() if code),
    ]


def _honest_work_is_done(facts: FuzzFacts) -> list[str]:
    found = [f"{each.way}: {each.error}" for each in facts.done if each.error]
    late = [each for each in facts.done if each.took_s > HANG_S]
    found += [f"{each.way}: a task took {each.took_s:.0f} s" for each in late]
    for way in facts.ways:
        if not any(each.way == way for each in facts.done):
            found.append(f"{way}: no task was done at all")
        if not any(each.way == way and not each.error for each in facts.after):
            found.append(f"{way}: no task was done after the last message")
    return found


def _futures_end(facts: FuzzFacts) -> list[str]:
    return list(facts.hanging)


def _books_are_right(facts: FuzzFacts) -> list[str]:
    return [f"the books of {site}: {wrong}" for site, wrong in facts.audits.items() if wrong]


def _memory_is_flat(facts: FuzzFacts) -> list[str]:
    found = []
    for site, samples in facts.samples.items():
        if (pair := measured(samples, facts.warm_s)) is None:
            continue
        before, after = pair
        most = before.rss_bytes * (1 + GROWTH) + GROWTH_BYTES
        if after.rss_bytes > most:
            grown = f"{before.rss_bytes / 2**20:.0f} to {after.rss_bytes / 2**20:.0f} MiB"
            found.append(f"{site}: memory grew from {grown}")
        if after.threads > before.threads + THREADS:
            found.append(f"{site}: {before.threads} threads became {after.threads}")
        if after.descriptors > before.descriptors + DESCRIPTORS:
            found.append(f"{site}: {before.descriptors} descriptors became {after.descriptors}")
    return found


def _disk_is_bounded(facts: FuzzFacts) -> list[str]:
    found = []
    for site, samples in facts.samples.items():
        first, last = samples[0], samples[-1]
        most = LOG_BYTES + LOG_BYTES_PER_S * (last.at_s - first.at_s)
        if last.log_bytes - first.log_bytes > most:
            found.append(f"{site}: a log of {last.log_bytes:,} bytes")
        if last.files > first.files + FILES:
            found.append(f"{site}: {first.files} files became {last.files}")
    return found


def _nothing_broke(facts: FuzzFacts) -> list[str]:
    found = []
    for site, log in facts.logs.items():
        lines = (line for line in log.splitlines() if FAULT.search(line) and not KNOWN.search(line))
        bare = sorted(re.sub(r"\d+", "…", line.partition("Z ")[2] or line) for line in lines)
        counted = [(len(list(same)), line) for line, same in groupby(bare)]
        found += [f"{site} said {times} times: {line[:300]}" for times, line in counted]
    return found


CHECKS: Final[Mapping[str, Callable[[FuzzFacts], list[str]]]] = {
    "gateways go on": _gateways_go_on,
    "honest work is done": _honest_work_is_done,
    "futures end": _futures_end,
    "books are right": _books_are_right,
    "memory is flat": _memory_is_flat,
    "logs and files are bounded": _disk_is_bounded,
    "nothing of ours broke": _nothing_broke,
}


def judge(facts: FuzzFacts) -> dict[str, list[str]]:
    """The violations, by check."""
    return {name: check(facts) for name, check in CHECKS.items()}
