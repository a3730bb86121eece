"""What a pool's pilots carry: as those do that have come, before what its table promises. Pure.

A table may promise what no host has: packages, a container's runtime, a GPU. Who believed it for
ever would start one pilot after the other for work that none of them can do. What ran before this
life may have been started by another table: it counts while it is here, and says nothing of new
ones. Where hosts differ, what one of this life has carried is believed of all.
"""

from collections.abc import Iterable
from typing import Final

from gateway.jobs import Worker
from policies.placement import FrozenTags, Offer, Tags, TagValue

KINDS_MAX: Final = 100  # of pilots, that are remembered

_Key = tuple[FrozenTags, str]


class Carried:
    """What is known of one pool's pilots."""

    def __init__(self) -> None:
        self._alike: dict[_Key, Offer] = {}  # each kind once: thousands are alike
        self._here: dict[int, Offer] = {}  # by worker, its kind
        self._tried: dict[_Key, Offer] = {}  # of those that were ordered in this life

    def see(self, workers: Iterable[tuple[Worker, bool]]) -> None:
        """Take in the workers that are here and ready; with each whether it was ordered lately."""
        here: dict[int, Offer] = {}
        for worker, is_tried in workers:
            kind = self._here.get(worker.handle)
            if kind is None:
                key = FrozenTags(worker.offer.tags), worker.offer.python
                kind = self._alike.setdefault(key, worker.offer)
                if is_tried and len(self._tried) < KINDS_MAX:
                    self._tried[key] = kind
            here[worker.handle] = kind
        self._here = here
        if not here:
            self._alike.clear()

    def forgive(self) -> None:
        """Somebody may have put hosts or table right: the promise counts again."""
        self._tried.clear()

    def offers(self, promised: Offer | None) -> list[Offer]:
        """What pilots offer, here and when another is started, each kind once."""
        found = {id(each): each for each in (*self._here.values(), *self._tried.values())}
        if not found and promised is not None:
            return [promised]
        return list(found.values())

    def kept(self, promised: Tags) -> dict[str, TagValue] | None:
        """What is true of a promise, as far as it was tried; None: all of it."""
        if not self._tried:
            return None
        found: dict[str, TagValue] = {}
        for name, value in promised.items():
            has = [each.tags[name] for each in self._tried.values() if name in each.tags]
            if isinstance(value, bool):
                if has:
                    found[name] = value
            elif counts := [each for each in has if not isinstance(each, bool)]:
                found[name] = min(value, max(counts))
        return None if found == dict(promised) else found
