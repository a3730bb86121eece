"""What contracts need to know of objects between sites: whether they move, and why they stay."""

from collections.abc import Callable
from dataclasses import dataclass

STAY = "objects of this site stay here"


@dataclass(slots=True)
class ObjectMoves:
    """Whether objects move between this site and others; they stay until the site opens the way.

    The contracts of a site share one.

    Attributes:
        fetches: whether this site fetches the objects of calls that others send, and results that
            are left at sellers.
        leaves_results: whether buyers can fetch results that are left here.
        why_ours_stay: why objects of this site can't go to others; empty: they can.
    """

    fetches: bool = False
    leaves_results: Callable[[], bool] = lambda: False
    why_ours_stay: Callable[[], str] = lambda: STAY

    def open(self, leaves_results: Callable[[], bool], why_ours_stay: Callable[[], str]) -> None:
        """Let objects move."""
        self.fetches = True
        self.leaves_results = leaves_results
        self.why_ours_stay = why_ours_stay
