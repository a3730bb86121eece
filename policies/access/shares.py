"""Fair shares: the tree of shares in the configuration, and its validation. Pure.

A share belongs to a party (`who`, see parties.py), or to the parties of the shares below it. Below
one parent, the first share in order that includes an owner gets the owner's work; so down the tree.
Work that a parent includes and none of its children does is in its `rest`, which has one share.
With `each`, the rest is split again: one share for each user, group, project or site.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policies.parties import NAMED, Party, PartyKind

REST: Final = "rest"  # the name for work that no sibling share includes
SHARES_WRITTEN_MAX: Final = 1_000
SHARES_EACH_MAX: Final = 1_000_000
LEVELS_MAX: Final = 8
NAME_CHARS_MAX: Final = 60
NAME_MARKS: Final = frozenset("/:")  # separators in a path, and between kind and name


@dataclass(frozen=True, slots=True)
class Share:
    """One share, as configured.

    Attributes:
        name: unique among shares.
        shares: its weight among the shares of the same parent.
        parent: the name of the share that it is a part of; empty: it is at the top.
        who: the party of its work; None: the parties of the shares below it.
        each: the kind of principal that gets one share each in its rest.
    """

    name: str
    shares: int = 1
    parent: str = ""
    who: Party | None = None
    each: PartyKind | None = None


class BadShares(ValueError):
    """Shares that form no valid tree; the text names the share and its key.

    Attributes:
        key: the invalid key; of `share`, or, without one, of the whole.
    """

    def __init__(self, key: str, text: str, share: Share | None = None) -> None:
        where = f"share {share.name[:80]!r}: " if share is not None else ""
        super().__init__(f"{where}{key} {text}")
        self.key, self.share = key, share


@dataclass(frozen=True, slots=True)
class FairShare:
    """The division of a site's slots.

    Attributes:
        half_life_s: the half-life of past usage.
        max_wait_s: a share that has waited this long for a slot goes first.
        each: as of a share, at the top.
        shares: in the order in which they are matched with an owner.

    Raises:
        BadShares: they form no valid tree.
    """

    half_life_s: float = 7 * 86_400.0
    max_wait_s: float = 86_400.0
    each: PartyKind | None = None
    shares: tuple[Share, ...] = ()

    def __post_init__(self) -> None:
        if not self.shares and self.each is None:
            raise BadShares(
                "share",
                "is missing: write [[fair_share.share]] tables, or each, for example each "
                '= "project"; without them no fair share applies',
            )
        if len(self.shares) > SHARES_WRITTEN_MAX:
            raise BadShares(
                "share", f"has {len(self.shares):,} entries, the limit is {SHARES_WRITTEN_MAX:,}"
            )
        _check_each(self.each, None)
        by_name = _by_name(self.shares)
        parents = {share.parent for share in self.shares}
        for share in self.shares:
            _check_alone(share, is_parent=share.name in parents)
            _check_above(share, by_name)
        _check_matched(self.shares, by_name)


def _by_name(shares: tuple[Share, ...]) -> dict[str, Share]:
    found: dict[str, Share] = {}
    for share in shares:
        name = share.name
        if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable() or NAME_MARKS & set(name):
            text = f"must be 1 to {NAME_CHARS_MAX} printable characters, without / and :"
            raise BadShares("name", text, share)
        if name == REST:
            raise BadShares("name", "is reserved for work that is in no share", share)
        if found.setdefault(name, share) is not share:
            raise BadShares("name", "is the name of another share", share)
    return found


def _check_each(each: PartyKind | None, share: Share | None) -> None:
    if each is not None and each not in NAMED:
        text = f"is {each.value!r}: must be one of {', '.join(sorted(NAMED))}"
        raise BadShares("each", text, share)


def _check_alone(share: Share, *, is_parent: bool) -> None:
    if not 1 <= share.shares <= SHARES_EACH_MAX:
        raise BadShares("shares", f"is {share.shares}: must be from 1 to {SHARES_EACH_MAX}", share)
    _check_each(share.each, share)
    if share.who is None and not is_parent:
        text = "is missing, and no share has this one as its parent, so no work would belong to it"
        raise BadShares("who", text, share)
    if share.who is None and share.each is not None:
        raise BadShares("each", "requires who, which names the users to divide among", share)


def _check_above(share: Share, by_name: Mapping[str, Share]) -> None:
    """Refuse a missing parent, a cycle, and too many levels."""
    names = [share.name]
    while (parent := by_name[names[-1]].parent) != "":
        below = by_name[names[-1]]
        if parent not in by_name:
            raise BadShares("parent", f"is {parent[:60]!r}: no such share is defined", below)
        if parent in names:
            cycle = ", ".join(map(repr, (*names[names.index(parent) :], parent)))
            raise BadShares("parent", f"forms a cycle: {cycle}", below)
        names.append(parent)
    if len(names) > LEVELS_MAX:
        text = f"is {len(names) - 1} levels deep: the limit is {LEVELS_MAX} levels"
        raise BadShares("parent", text, share)


def _check_matched(shares: tuple[Share, ...], by_name: Mapping[str, Share]) -> None:
    """Refuse shares that can never match, because an earlier one takes all their work."""
    seen: dict[str, list[Share]] = {}
    for share in shares:
        if share.who is None:
            continue
        for other in seen.setdefault(_scope(share, by_name), []):
            assert other.who is not None
            if other.who == share.who:
                text = f"is {str(share.who)!r}, which {other.name!r} has too: name a party once"
                raise BadShares("who", text, share)
            if other.parent == share.parent and _covers(other.who, share.who):
                raise BadShares(
                    "who",
                    f"is {str(share.who)!r}, but {other.name!r} ({other.who}) comes first "
                    f"and covers all of it: move {share.name!r} above it",
                    share,
                )
        seen[_scope(share, by_name)].append(share)


def _scope(share: Share, by_name: Mapping[str, Share]) -> str:
    """Return the nearest share above it that names a party; empty: none does."""
    return next((each.name for each in _above(share, by_name) if each.who is not None), "")


def _above(share: Share, by_name: Mapping[str, Share]) -> Iterator[Share]:
    while share.parent:
        share = by_name[share.parent]
        yield share


def _covers(party: Party, other: Party) -> bool:
    """Whether all work of another party is work of this one, for any owner."""
    match party.kind:
        case PartyKind.ALL:
            return True
        case PartyKind.OURS:
            return other.kind is PartyKind.GROUP
        case PartyKind.OTHERS:
            return other.kind is PartyKind.SITE
        case _:
            return False
