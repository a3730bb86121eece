"""Changes of a site's rules."""

from collections.abc import Callable

from gateway.ledger.db.rules.records import RuleChangeRow
from simulations.world.memory.tables import Tables


class MemoryRules:
    """The RuleStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def changes(self) -> list[RuleChangeRow]:
        """See RuleStore."""
        return [each for _, each in sorted(self._tables().rule_changes.items())]
