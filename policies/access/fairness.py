"""Fair sharing: slots divided by weight, over time, in a tree. Pure.

*Decayed usage.* A slot-second that ended δ ago counts β = 0.5^(δ / half-life) (HTCondor's and
Slurm's half-life decay). It is kept as forward decay (Cormode, Shkapenyuk, Srivastava and Xu 2009):
usage that ends at t is added with the weight 2^((t - L) / half-life), and the current figure is the
sum divided by the current weight. The two are equal for any t. Nothing needs an update as time
passes, and in integers a sum does not depend on the order in which its parts came.

*Order of turns.* Fair Tree (Cox and Morrison, Slurm 14.11): among siblings the one with the largest
level fair share S / U goes first, S its shares and U its usage; then likewise among its children,
down to a leaf. Here it is U / S, least first: no usage is 0, and not infinite. So users of a share
never suffer or gain by events within another share. Siblings with equal usage for their shares go
by shares, largest first, then by name.

*Provisional debit.* Handed-out work is held at its expected slot time at once, and counts in U
until it is reported; then its real usage replaces it. Work that has run longer than expected is
held at its run time so far. So a burst before the first report does not get everything.

*Ageing.* A node whose work waits, and that has got nothing for `max_wait`, goes before all siblings
that have; of several, the one that has waited longest. It gets one turn (a bundle of short tasks,
or one that fills a slot), and its wait starts again. So a child waits at most `max_wait`, and one
turn of each sibling, of the turns that its parent gets; and the parent gets some for the same
reason. Until then ageing changes nothing, and usage converges to shares.

The caller passes in the time (`utc_s`, UTC). If its clock is set back, time goes on here from where
it was.
"""

from bisect import insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from math import expm1, log
from typing import Final

from federation.clocks import UtcS
from policies.access.shares import REST, FairShare, Share
from policies.parties import Owner, Party, PartyKind

NS: Final = 10**9
UNIT_BITS: Final = 30  # the initial weight of a nanosecond of usage, in bits, …
HALF_LIVES_MAX: Final = 64  # … and the bits added until all sums are halved as often
CHILDREN_MAX: Final = 10_000  # of unconfigured children in a tree; later ones share a rest node
# An unconfigured child with less usage than this is not shown, and is removed if room is needed.
NEGLIGIBLE_NS: Final = NS
FORGET_S: Final = 60.0  # the minimum interval between searches for such children
OWN: Final = "(own)"  # in place of a site's name, which has no brackets

# The rank of a node among its siblings: whether it is not late; its usage for its shares, or since
# when it waits; its shares, negative; its name.
Level = tuple[bool, float, int, str]
Place = tuple[Level, ...]


@dataclass(slots=True, eq=False)
class ShareNode:
    """A share in the tree. `path` leads to it from below the root, and ends with it."""

    name: str
    shares: int
    who: Party | None
    each: PartyKind | None
    path: tuple["ShareNode", ...] = ()
    is_written: bool = True
    parts: list["ShareNode"] = field(default_factory=list)  # its children from the configuration
    children: dict[str, "ShareNode"] = field(default_factory=dict)
    used: int = 0  # nanoseconds of slot time, weighted
    held_ns: int = 0  # expected slot time of work that is handed out
    since_s: float = 0.0  # when it last got something, or began to wait; by the tree's own clock
    jobs: int = 0  # that have not ended
    level: Level = (True, 0.0, 0, "")  # of one that waits, as of the last computation of `turns`

    @property
    def title(self) -> str:
        """Its path, for people."""
        return "/".join(node.name for node in self.path)

    @property
    def party(self) -> Party | None:
        """The party whose work it is for; None for one that has many."""
        if self.who is not None or self.is_written:
            return self.who
        kind, _, name = self.name.partition(":")
        return Party(PartyKind(kind), name) if name and name != OWN else None

    def includes(self, whose: Owner) -> bool:
        """Whether an owner's work belongs to it."""
        if self.who is not None:
            return self.who.counts(whose)
        return any(part.includes(whose) for part in self.parts)


@dataclass(frozen=True, slots=True)
class ShareStanding:
    """The state of a share.

    Attributes:
        target: its part of all slots, if all shares always wanted more.
        used_s: decayed slot-seconds; `part`: its part of all such; `held_s`: the expected time of
            handed-out work.
        wait_s: how long it has waited for a slot; None: it has no queued work.
        place: 1 for the leaf with the next turn, of those that wait; None: not a waiting leaf.
    """

    node: ShareNode
    target: float
    used_s: float
    part: float
    held_s: float
    wait_s: float | None
    is_late: bool
    place: int | None


class Tree:
    """The shares of a site, the usage of each, and the order of turns."""

    def __init__(self, rules: FairShare) -> None:
        self.rules = rules
        self.root = ShareNode("", 1, None, rules.each)
        self._children = 0  # the number of unconfigured children
        self._forgot_s = -FORGET_S
        self._waiting: dict[ShareNode, None] = {}
        self._queues: dict[
            ShareNode, list[ShareNode]
        ] = {}  # by parent: its waiting children in order
        self._walked: list[ShareNode] = []  # the leaves in that order, once all were visited
        self._seen_at_s: UtcS | None = None
        self._origin_at_s = UtcS(0.0)  # the moment whose weight is that of UNIT_BITS
        self._clock_s = 0.0  # seconds since then
        self._weight = 1 << UNIT_BITS
        below: dict[str, list[Share]] = {}
        for share in rules.shares:
            below.setdefault(share.parent, []).append(share)
        _grow(self.root, below)

    # --- time ----------------------------------------------------------------------------------

    def move_on(self, utc_s: UtcS) -> None:
        """Set the current time."""
        if utc_s == self._seen_at_s:
            return
        if self._seen_at_s is None:
            self._origin_at_s = utc_s
        elif utc_s < self._seen_at_s:
            self._origin_at_s -= self._seen_at_s - utc_s
        self._seen_at_s = utc_s
        self._clock_s = utc_s - self._origin_at_s
        half_lives = self._clock_s / self.rules.half_life_s
        if half_lives > HALF_LIVES_MAX:
            self._halve(int(half_lives))
            half_lives = self._clock_s / self.rules.half_life_s
        self._weight = round(2.0 ** (UNIT_BITS + half_lives))

    def _halve(self, times: int) -> None:
        """Move the origin by whole half-lives, so that sums stay short."""
        passed_s = times * self.rules.half_life_s
        self._origin_at_s += passed_s
        self._clock_s -= passed_s
        self._forgot_s -= passed_s
        for node in self.nodes():
            node.used >>= times
            node.since_s -= passed_s

    # --- owners of work -------------------------------------------------------------------------

    def leaf_of(self, whose: Owner) -> ShareNode:
        """Return the leaf for an owner's work; create it if it is not in the configuration."""
        node = self.root
        while True:
            part = next((each for each in node.parts if each.includes(whose)), None)
            if part is not None:
                node = part
            elif node.each is not None:
                return self._child(node, _name_of(node.each, whose))
            elif node.parts or node is self.root:
                return self._child(node, REST)
            else:
                return node

    def _child(self, node: ShareNode, name: str) -> ShareNode:
        found = node.children.get(name)
        if found is not None:
            return found
        if self._children >= CHILDREN_MAX:
            self._forget_idle()
        if self._children >= CHILDREN_MAX:
            if REST in node.children:
                return node.children[REST]
            name = REST
        self._children += 1
        made = node.children[name] = ShareNode(name, 1, None, None, is_written=False)
        made.path = (*node.path, made)
        return made

    def _forget_idle(self) -> None:
        """Remove unconfigured children without jobs or significant usage."""
        if self._clock_s - self._forgot_s < FORGET_S:
            return
        self._forgot_s = self._clock_s
        for node in list(self.nodes()):
            for child in [each for each in node.children.values() if not self._matters(each)]:
                del node.children[child.name]
                self._children -= 1

    def _matters(self, node: ShareNode) -> bool:
        is_busy = node.jobs or node.held_ns or node in self._waiting
        return bool(node.is_written or is_busy or self.used_ns(node) >= NEGLIGIBLE_NS)

    # --- usage ----------------------------------------------------------------------------------

    def used_ns(self, node: ShareNode) -> float:
        """Return the decayed slot time of a share, nanoseconds, as of the last `move_on`."""
        return node.used / self._weight

    def charge(self, leaf: ShareNode, wall_ns: int) -> None:
        """Add slot time that ended just now."""
        used = wall_ns * self._weight
        self.root.used += used
        for node in leaf.path:
            node.used += used

    def hold(self, leaf: ShareNode, expected_ns: int) -> None:
        """Hold the expected time of handed-out work; a negative time releases it."""
        self.root.held_ns += expected_ns
        for node in leaf.path:
            node.held_ns += expected_ns

    # --- order of turns -------------------------------------------------------------------------

    def begin(self, leaves: Iterable[ShareNode]) -> None:
        """Set the leaves that have queued work: `turns` are theirs, until the next `begin`.

        Call it before handing out work, and also when nothing is queued: a leaf without queued work
        is not waiting.
        """
        waiting = dict.fromkeys(node for leaf in leaves for node in leaf.path)
        for node in waiting:
            if node not in self._waiting:
                node.since_s = self._clock_s
        self._waiting = waiting
        self._forget_turns()

    def turns(self) -> Iterable[ShareNode]:
        """Return the waiting leaves in the order of their turns; `gave` keeps that up to date."""
        return self._walked or self._walk()

    def _walk(self) -> Iterator[ShareNode]:
        if not self._queues:
            for node in self._waiting:
                node.level = self._level(node)
                parent = node.path[-2] if len(node.path) > 1 else self.root
                self._queues.setdefault(parent, []).append(node)
            for queue in self._queues.values():
                queue.sort(key=_level_of)
        walked = []
        for leaf in self._turns_below(self.root):
            walked.append(leaf)
            yield leaf
        self._walked = walked  # a complete walk, as for a worker without room: reuse it

    def _turns_below(self, node: ShareNode) -> Iterator[ShareNode]:
        for child in self._queues.get(node, ()):
            if child in self._queues:
                yield from self._turns_below(child)
            else:
                yield child

    def gave(self, leaf: ShareNode) -> None:
        """Note that a leaf got work: its wait starts again, and it moves back."""
        parent = self.root
        self._walked = []
        for node in leaf.path:
            node.since_s = self._clock_s
            node.level = self._level(node)
            queue = self._queues.get(parent)
            if queue is not None and node in self._waiting:
                queue.remove(node)
                insort(queue, node, key=_level_of)
            parent = node

    def _forget_turns(self) -> None:
        self._queues.clear()
        self._walked = []

    def place(self, leaf: ShareNode) -> Place:
        """Return the place of a waiting leaf, by which jobs compare: the least goes first."""
        return tuple([node.level for node in leaf.path])

    def is_ahead(self, leaf: ShareNode, other: ShareNode, held_ns: int) -> bool:
        """Whether a leaf goes before another, even if `held_ns` of the other's hold came back."""
        node, sibling = _parting(leaf, other)
        return self._level(node) < self._level(sibling, held_ns)

    def turn(self, leaf: ShareNode, others: Collection[ShareNode], task_ns: int, tasks: int) -> int:
        """Return how many of so many tasks the first leaf gets at once, where others wait for them.

        As many as it takes until another leaf's turn. Or, where that is more, its part of the
        tasks: its eventual share, in one turn instead of many.
        """
        if not others:
            return tasks
        due_ns = min(self._due_ns(leaf, other) for other in others)
        if due_ns < 0:
            return 1
        return min(tasks, max(1 + due_ns // task_ns, int(tasks * _part(leaf, others))))

    def _due_ns(self, leaf: ShareNode, other: ShareNode) -> int:
        """Return the slot time that a leaf can get before another goes first; -1: one is late."""
        node, sibling = _parting(leaf, other)
        if not (node.level[0] and sibling.level[0]):
            return -1
        due = self._total(sibling) * node.shares // sibling.shares - self._total(node)
        return max(0, due // self._weight)

    def _level(self, node: ShareNode, less_ns: int = 0) -> Level:
        tie = (-node.shares, node.name)
        if node in self._waiting and self._clock_s - node.since_s >= self.rules.max_wait_s:
            return (False, node.since_s, *tie)
        return (True, (self._total(node) - less_ns * self._weight) / node.shares, *tie)

    def _total(self, node: ShareNode) -> int:
        return node.used + node.held_ns * self._weight

    # --- inspection -----------------------------------------------------------------------------

    def nodes(self) -> Iterator[ShareNode]:
        """Yield the root and all nodes below it, parents before their children."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(node.children.values())

    def standings(self) -> list[ShareStanding]:
        """Return the state of each share; unconfigured ones only while they matter."""
        self._forget_turns()  # time has passed
        places = {leaf: number for number, leaf in enumerate(self.turns(), 1)}
        found: list[ShareStanding] = []
        targets = {self.root: 1.0}
        for node in self.nodes():
            if node not in targets:
                continue
            shown = [each for each in node.children.values() if self._matters(each)]
            total = sum(each.shares for each in shown)
            targets |= {each: targets[node] * each.shares / total for each in shown}
            if node is self.root:
                continue
            is_waiting = node in self._waiting
            found.append(
                ShareStanding(
                    node=node,
                    target=targets[node],
                    used_s=self.used_ns(node) / NS,
                    part=node.used / self.root.used if self.root.used else 0.0,
                    held_s=node.held_ns / NS,
                    wait_s=self._clock_s - node.since_s if is_waiting else None,
                    is_late=is_waiting and not self._level(node)[0],
                    place=places.get(node),
                )
            )
        return found


def _level_of(node: ShareNode) -> Level:
    return node.level


def _parting(leaf: ShareNode, other: ShareNode) -> tuple[ShareNode, ShareNode]:
    """Return the siblings at which the paths to two leaves diverge."""
    ways = zip(leaf.path, other.path, strict=False)
    return next((node, sibling) for node, sibling in ways if node is not sibling)


def _part(leaf: ShareNode, others: Iterable[ShareNode]) -> float:
    """Return a leaf's part of slots that are divided among it and others."""
    part, beside = 1.0, list(others)
    for depth, node in enumerate(leaf.path):
        total = sum(each.shares for each in {node, *(other.path[depth] for other in beside)})
        part *= node.shares / total
        beside = [other for other in beside if other.path[depth] is node]
    return part


def _grow(node: ShareNode, below: dict[str, list[Share]]) -> None:
    """Create the configured shares below a node."""
    for share in below.get(node.name, ()):
        part = ShareNode(share.name, share.shares, share.who, share.each)
        part.path = (*node.path, part)
        node.parts.append(part)
        node.children[part.name] = part
        _grow(part, below)


def _name_of(each: PartyKind, whose: Owner) -> str:
    """Return the name of the child for an owner's work, where each owner has one.

    Other sites choose the names of their users and projects: a whole site is one child.
    """
    if whose.site:
        return f"{PartyKind.SITE}:{whose.site}"
    own = {
        PartyKind.USER: whose.user,
        PartyKind.GROUP: whose.group,
        PartyKind.PROJECT: whose.project,
    }
    if each is PartyKind.SITE:
        return f"{PartyKind.SITE}:{OWN}"
    return f"{each}:{own[each]}" if own[each] else REST


def spread_ns(
    wall_ns: int, start_at_s: UtcS, end_at_s: UtcS, utc_s: UtcS, half_life_s: float
) -> int:
    """Return the decayed value of slot time that was used evenly over [start, end), before now.

    The mean of 0.5^((now - t) / half-life) over t: (β(now - end) - β(now - start)) / (λ·(end -
    start)), λ = ln 2 / half-life.
    """
    end_at_s = min(
        end_at_s, max(start_at_s, utc_s)
    )  # of the current hour, only the part that has passed
    spent = (end_at_s - start_at_s) / half_life_s
    mean = -expm1(-spent * log(2)) / (spent * log(2)) if spent > 1e-9 else 1.0
    past: float = 0.5 ** (max(0.0, utc_s - end_at_s) / half_life_s)
    return round(wall_ns * mean * past)
