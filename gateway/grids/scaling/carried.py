"""The offers of a pool's pilots: observed ones take precedence over its table's promise. Pure.

A table may promise things that no host has: packages, a container's runtime, a GPU. Believing it
for ever would start one pilot after the other for work that none of them can do. Pilots from before
this run of the site may have been started by another table: they count while they are here, and say
nothing of new ones. Where hosts differ, the offer of one pilot of this run is believed of all.
"""

from collections.abc import Iterable
from typing import Final

from gateway.scheduler.model.jobs import Worker
from policies.placement.placement import CapacityOffer, FrozenTags, Tags, TagValue

KINDS_MAX: Final = 100  # of pilots, the most that are remembered

_Key = tuple[FrozenTags, str]


class Carried:
    """The known offers of one pool's pilots."""

    def __init__(self) -> None:
        self._alike: dict[_Key, CapacityOffer] = {}  # each kind once: thousands are alike
        self._here: dict[int, CapacityOffer] = {}  # by worker, its kind
        self._tried: dict[_Key, CapacityOffer] = {}  # of pilots ordered in this run of the site

    def see(self, workers: Iterable[tuple[Worker, bool]]) -> None:
        """Take in the workers that are here and ready; each with whether it was ordered lately."""
        here: dict[int, CapacityOffer] = {}
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
        """Trust the promise again: the operator may have fixed hosts or table."""
        self._tried.clear()

    def offers(self, promised: CapacityOffer | None) -> list[CapacityOffer]:
        """Return the offers of pilots, present and future, each kind once."""
        found = {id(each): each for each in (*self._here.values(), *self._tried.values())}
        if not found and promised is not None:
            return [promised]
        return list(found.values())

    def kept(self, promised: Tags) -> dict[str, TagValue] | None:
        """Return the true part of a promise, as far as it was tried; None: all of it."""
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
