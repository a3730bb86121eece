"""Tables of reports, in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose columns after the first one are numbers, aligned to the right."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|---|" + "---:|" * (len(head) - 1)
    return "\n".join([f"| {' | '.join(head)} |", rule, *lines])
