"""So many a second and no more: a token bucket, pure."""


class Pace:
    """Counts what happens against a rate; a second's worth may come at once.

    Args:
        per_s: how many a second; 0 for as many as come.
        now_s: any monotonic clock.
    """

    __slots__ = ("_left", "_per_s", "_since_s")

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._left = per_s
        self._since_s = now_s

    def note(self, now_s: float) -> None:
        """One has happened, whether it was allowed or not."""
        self._refill(now_s)
        self._left -= 1

    def allows(self, now_s: float) -> bool:
        """Whether one more would be within the rate."""
        if not self._per_s:
            return True
        self._refill(now_s)
        return self._left >= 0

    def _refill(self, now_s: float) -> None:
        gained = (now_s - self._since_s) * self._per_s
        self._left = min(self._per_s, self._left + gained)
        self._since_s = now_s
