"""Names of users that are one letter off another: probably mistakes, of which nobody is told else.

Users come from tokens and from the host, so no list of all exists. Those of [groups] are known, and
so are the users of this host.
"""

import pwd
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from gateway.base.toml_lines import Path as Place
from gateway.checking.findings import FindingList

SHORTEST: Final = 3  # of names that are compared: of shorter ones many resemble each other
SHORTEST_CUT: Final = 2  # likewise, where the other name has one letter more
SHORTEST_MEMBER: Final = 4  # of members of groups, of which there are many


def check_users(
    mentions: Sequence[tuple[str, str, Place]],
    groups: Mapping[str, Sequence[str]],
    findings: FindingList,
) -> None:
    """Warn of users who are one letter off another user.

    Args:
        mentions: the users that rules name, each with the subject and the place of a finding.
        groups: the groups of each user.
        findings: the list that warnings are added to.
    """
    named = Counter(name for name, _, _ in mentions)
    for name, subject, place in mentions:
        if name in groups or len(name) < SHORTEST_CUT:
            continue
        # Members are known; of two that only rules name the rarer one is the mistake.
        rarer = (each for each, times in named.items() if times > named[name])
        others = [*groups, *sorted(rarer)]
        if len(name) < SHORTEST:
            others = [each for each in others if len(each) > len(name)]
        alike = _alike(name, others)
        if alike and not _is_of_host(name):
            text = f"user {name!r} is in no group of [groups] (did you mean {alike!r}?)"
            findings.warn("unknown-user", subject, text, place)
    often = {name for name in {*groups, *named} if named[name] + len(groups.get(name, ())) > 1}
    for name, of_user in groups.items():
        if name in often or len(name) < SHORTEST_MEMBER:
            continue
        alike = _alike(name, sorted(often))
        if alike and not _is_of_host(name):
            text = f"user {name!r} is named nowhere else (did you mean {alike!r}?)"
            subject = f"[groups] {of_user[0]}"
            findings.warn("unknown-user", subject, text, ("groups", of_user[0]))


def _alike(name: str, others: Iterable[str]) -> str:
    """Return the first of the others that is one letter off; empty without any."""
    return next((each for each in others if is_one_off(name, each)), "")


def is_one_off(one: str, other: str) -> bool:
    """Whether one letter is missing, added, different, or has changed places with the next.

    Digits are no letters: `trader1` and `trader2` are two users.
    """
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    start = next(_differing(one, other))
    if len(one) == len(other):
        swapped = one[:start] + one[start : start + 2][::-1] + one[start + 2 :]
        if swapped == other:
            return not one[start : start + 2].isdigit()
        are_letters = not (one[start].isdigit() or other[start].isdigit())
        return are_letters and one[start + 1 :] == other[start + 1 :]
    shorter, longer = sorted((one, other), key=len)
    return not longer[start].isdigit() and longer[:start] + longer[start + 1 :] == shorter


def _differing(one: str, other: str) -> Iterator[int]:
    """Yield where two texts differ, and where the shorter one ends."""
    for at, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            yield at
    yield min(len(one), len(other))


def _is_of_host(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: a name that no host can have
        return False
    return True
