"""The watch: checks books and prices now and then, judges the rules, and notifies people.

An alert is logged at once, then its actions run in parallel, and once each of them is done or given
up, the alert is recorded as given. So a gateway that dies in between notifies twice rather than
never. While its actions run, the alert counts as given, in memory.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import trio
from sqlalchemy.exc import SQLAlchemyError

from federation.clocks import UtcS
from federation.words import duration_text
from gateway.alerts import views
from gateway.alerts.actions import Action, ActionFailed, actions_of, body_of
from gateway.alerts.books import AlertBooks
from gateway.base.faults import describe_fault
from gateway.config.alerts import AlertsConfig
from gateway.ledger.db.alerts.records import AlertEnded, AlertFired, AlertRow
from gateway.ledger.db.errors import StoreError
from gateway.ledger.db.records import Record
from gateway.ledger.store.store import Store
from policies.costs.alerts import (
    Alert,
    Facts,
    Mark,
    PoolPrice,
    PriceLimit,
    ended,
    judge,
    overlooked,
    printable,
    sample,
)

ACTIONS_AT_ONCE: Final = 4
GIVING_MAX: Final = 100  # alerts with running or queued actions; others are judged at a later look
RETRY_FACTOR: Final = 4
# The number of looks in a row in which a rule must overlook something until it is logged: a gateway
# that has just started has heard of no other site's pools yet.
OVERLOOKED_LOOKS: Final = 3


class NoSuchAlert(Exception):
    """There is no rule of that name; the text lists the names."""


class Watch:
    """Watches the rules of a configuration.

    Args:
        config: rules and actions; without rules there is nothing to run.
        site: the name of this site.
        store: has sums, and the alerts that were given.
        read: reads from it, as `Site.read`.
        record: writes, as `Site.record`: returns when it is committed.
        prices: the present price of every known pool.
        say: a line for the operator.
        utc_s: the time.
    """

    def __init__(
        self,
        config: AlertsConfig,
        site: str,
        store: Store,
        *,
        read: Callable[..., Awaitable[Any]],
        record: Callable[..., Awaitable[None]],
        prices: Callable[[], Iterable[PoolPrice]],
        say: Callable[[str], None],
        utc_s: Callable[[], UtcS],
    ) -> None:
        self._config = config
        self._site = site
        self._store = store
        self._read = read
        self._record = record
        self._prices = prices
        self._say = say
        self._utc_s = utc_s
        self._rules = tuple(each.rule for each in config.watched)
        self._watched = {each.rule.name: each for each in config.watched}
        self._books = AlertBooks(store)
        self._told: dict[Mark, AlertRow] | None = None  # None: not read yet
        self._giving: set[Mark] = set()
        # By rule and subject: in how many looks up to now it was overlooked.
        self._overlooked: dict[tuple[str, str], int] = {}
        self._acting = trio.CapacityLimiter(ACTIONS_AT_ONCE)
        self._looking = trio.Lock()

    async def run(self) -> None:
        """Look at an interval, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    await self._look(nursery)
                except (StoreError, SQLAlchemyError) as error:
                    self._say(f"alerts: the books can't be read: {error}"[:300])
                except Exception as error:  # noqa: BLE001 - no alert may stop the gateway
                    self._say(describe_fault("alerts", error))
                await trio.sleep(self._config.pace.interval_s)

    async def standing(self) -> list[dict[str, Any]]:
        """Return the present standing of each rule, as people are shown it."""
        facts, told = await self._facts(), await self._read_told()
        return [views.standing(rule, facts, list(told.values())) for rule in self._rules]

    async def test(self, name: str) -> dict[str, Any]:
        """Run the actions of an alert once, and return their outcomes. Raises NoSuchAlert."""
        watched = self._watched.get(name)
        if watched is None:
            known = ", ".join(self._watched) or "none"
            raise NoSuchAlert(f"alert {printable(name)!r} not found; known alerts: {known}")
        alert = sample(watched.rule, self._utc_s())
        body = body_of(alert, self._site, is_test=True)
        self._say(f"alert: {alert.text}")
        actions: list[dict[str, str]] = [{"action": "log", "error": ""}]
        for action in actions_of(watched, self._config.pace):
            actions.append({"action": action.name, "error": await self._try(action, body) or ""})
        return {"name": name, "actions": actions}

    async def _look(self, nursery: trio.Nursery) -> None:
        """Judge once, and start to give the alerts that are due."""
        if len(self._giving) >= GIVING_MAX:
            return
        told = await self._read_told()
        facts = await self._facts()
        below = ended(self._rules, facts, _raised(told))
        over = [mark for mark in below if mark not in self._giving]
        for mark in over:
            self._say(f"alert: {mark.name}: {mark.key} has ended")
            await self._note(AlertEnded(*mark, ended_at_s=facts.utc_s))
        self._say_overlooked(facts)
        # Judged again: in the meantime alerts may have been given, and left `_giving`.
        due = judge(self._rules, facts, _raised(told) | self._giving)
        groups: dict[tuple[str, str], list[Alert]] = {}
        for alert in due[: GIVING_MAX - len(self._giving)]:
            self._say(f"alert: {alert.severity.value}: {alert.text}")
            self._giving.add(alert.mark)
            groups.setdefault((alert.mark.name, alert.mark.key), []).append(alert)
        for group in groups.values():
            nursery.start_soon(self._give_in_turn, group)

    def _say_overlooked(self, facts: Facts) -> None:
        """Log what rules seem to watch and don't, once while it stays so."""
        found = {
            (rule.name, key): text
            for rule in self._rules
            for key, text in overlooked(rule, facts).items()
        }
        self._overlooked = {mark: self._overlooked.get(mark, 0) + 1 for mark in found}
        for mark, text in found.items():
            if self._overlooked[mark] == OVERLOOKED_LOOKS:
                self._say(f"alerts: {mark[0]}: {text}"[:500])

    async def _facts(self) -> Facts:
        has_prices = any(isinstance(rule, PriceLimit) for rule in self._rules)
        prices = tuple(self._prices()) if has_prices else ()
        async with self._looking:  # one thread at a time uses the caches of the books
            facts = await self._read(self._books.facts, self._rules, prices, self._utc_s())
        assert isinstance(facts, Facts)
        return facts

    async def _read_told(self) -> dict[Mark, AlertRow]:
        if self._told is None:
            rows = await self._read(self._store.alerts.all)
            found = {Mark(row.name, row.key, row.level): row for row in rows}
            self._told = {mark: row for mark, row in found.items() if mark.name in self._watched}
        return self._told

    async def _give_in_turn(self, alerts: list[Alert]) -> None:
        """Give the levels of one budget that were passed together in their order."""
        for alert in alerts:
            await self._give(alert)

    async def _give(self, alert: Alert) -> None:
        """Run the further actions of an alert, and record it."""
        try:
            body = body_of(alert, self._site)
            async with trio.open_nursery() as nursery:
                for action in actions_of(self._watched[alert.mark.name], self._config.pace):
                    nursery.start_soon(self._do, action, body)
            await self._note(AlertFired(*alert.mark, at_s=alert.at_s))
        except StoreError as error:
            self._say(f"alerts: {alert.mark.name} could not be recorded: {error}"[:300])
        except Exception as error:  # noqa: BLE001 - no alert may stop the gateway
            self._say(describe_fault(f"alert {alert.mark.name}", error))
        finally:
            self._giving.discard(alert.mark)

    async def _do(self, action: Action, body: dict[str, Any]) -> None:
        """Run an action, with retries if they may help; log its failures."""
        pace = self._config.pace
        wait_s = pace.retry_s
        for left in reversed(range(pace.tries)):
            reason, again = await self._attempt(action, body)
            if not reason:
                return
            what = f"alerts: {body['name']}: {action.name}: {reason}"
            if not (left and again):
                self._say(f"{what}; no more attempts")
                return
            self._say(f"{what}; next attempt in {duration_text(wait_s)}, {left} left")
            await trio.sleep(wait_s)
            wait_s *= RETRY_FACTOR

    async def _try(self, action: Action, body: dict[str, Any]) -> str:
        """Run an action once; return why it failed, or nothing."""
        reason, _ = await self._attempt(action, body)
        if reason:
            self._say(f"alerts: {body['name']}: {action.name}: {reason}")
        return reason

    async def _attempt(self, action: Action, body: dict[str, Any]) -> tuple[str, bool]:
        """Run an action once, in turn; return why it failed, or nothing, and whether to retry."""
        async with self._acting:
            try:
                await action.run(body)
            except ActionFailed as error:
                return str(error), error.again
            except Exception as error:  # noqa: BLE001 - no alert may stop the gateway
                return describe_fault(action.name, error), False
        return "", False

    async def _note(self, record: AlertFired | AlertEnded) -> None:
        """Record it, in memory first: an alert that the store can't write is not given again."""
        told = await self._read_told()
        mark = Mark(record.name, record.key, record.level)
        match record:
            case AlertFired():
                told[mark] = AlertRow(*mark, record.at_s, None)
            case AlertEnded():
                told[mark] = AlertRow(*mark, told[mark].at_s, record.ended_at_s)
        written: Record = record
        await self._record(written)


def _raised(told: Mapping[Mark, AlertRow]) -> set[Mark]:
    """Return the alerts that were given, and are not over."""
    return {mark for mark, row in told.items() if row.ended_at_s is None}
