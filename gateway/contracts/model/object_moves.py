"""What contracts need to know of objects between sites: whether they move, and why they stay."""

from collections.abc import Callable
from dataclasses import dataclass

from policies.costs.moving import MovePrices

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
        prices: the current prices of bytes that move under contracts of this site's buyers.
        input_bytes: how many bytes of objects a job here holds for its calls, by its id.
    """

    fetches: bool = False
    leaves_results: Callable[[], bool] = lambda: False
    why_ours_stay: Callable[[], str] = lambda: STAY
    prices: Callable[[], MovePrices] = MovePrices
    input_bytes: Callable[[str], int] = lambda _: 0

    def open(
        self,
        leaves_results: Callable[[], bool],
        why_ours_stay: Callable[[], str],
        prices: Callable[[], MovePrices],
        input_bytes: Callable[[str], int],
    ) -> None:
        """Let objects move."""
        self.fetches = True
        self.leaves_results = leaves_results
        self.why_ours_stay = why_ours_stay
        self.prices = prices
        self.input_bytes = input_bytes
