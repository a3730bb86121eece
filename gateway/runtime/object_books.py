"""The cost of objects at a site: its price, its budgets, and its books."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from sqlalchemy.exc import SQLAlchemyError

from federation.clocks import UtcS
from gateway.base.scopes import ObjectScope
from gateway.config.groups import owner_of
from gateway.config.site import SiteConfig
from gateway.ledger.db.errors import StoreError, cause_text
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.store.store import Store
from gateway.objects.billing import HoldTerms
from gateway.runtime.environment import RuntimeEnvironment
from gateway.runtime.server import GatewayServer
from gateway.scheduler.model.effects import Write
from gateway.scheduler.quotas.spending import used_of
from policies.costs.budgets import BudgetAccount, hard_payers, unpayable
from policies.costs.holding import HoldPrice

USUAL_CURRENCY = "USD"


class SiteOfObjects(Protocol):
    """The site, as the books of objects use it."""

    config: SiteConfig
    server: GatewayServer
    store: Store

    @property
    def runtime(self) -> RuntimeEnvironment:
        """Clock and chance."""

    async def read(self, query: Callable[..., Any], *arguments: Any) -> Any:
        """Read from the store, in turn."""


class SiteObjectBooks:
    """The `ObjectBooks` of a site; its server and store are used once they are there."""

    def __init__(self, site: SiteOfObjects) -> None:
        self._site = site

    def terms(self) -> HoldTerms:
        """See ObjectBooks."""
        config = self._site.config
        return HoldTerms(self._price(), lambda user: owner_of(config.groups, user).group)

    def _price(self) -> HoldPrice:
        """Return the price; free objects are in the currency of the pools, as all reports are."""
        config = self._site.config
        currencies = [pool.prices.currency for pool in config.pools]
        return config.objects.price((currencies or [USUAL_CURRENCY])[0])

    def book(self, records: Iterable[UsageRecord]) -> None:
        """See ObjectBooks."""
        server, utc_s = self._site.server, self._site.runtime.utc_s()
        writes = []
        for record in records:
            # What is held or moved for another site's calls costs nothing: no budget pays for it.
            payers = () if record.origin else self._budgets_of(record.user, record.project)
            for budget_account in payers:
                if nanos := used_of(budget_account, record):
                    budget_account.spend(nanos, utc_s)
            writes.append(Write(record))
        server.outbox.perform(writes)

    async def booked(self, start_at_s: UtcS) -> Mapping[int, UtcS]:
        """See ObjectBooks."""
        try:
            found: Mapping[int, UtcS] = await self._site.read(
                self._site.store.usage.held_since, start_at_s
            )
        except SQLAlchemyError as error:
            raise StoreError(cause_text(error)) from error
        return found

    def objection(self, user: str, scope: str) -> str:
        """See ObjectBooks."""
        found_scope = ObjectScope.read(scope)
        price = self.terms().price_for(found_scope)
        budget_accounts = self._budgets_of(user, found_scope.project) if price.nanos else ()
        if not budget_accounts:
            return ""
        if (found := unpayable(budget_accounts, price.currency, "")) is not None:
            return f"holding objects costs {price}: {found[1]}"
        for budget_account in hard_payers(budget_accounts):
            if budget_account.room_nanos <= 0:
                return f"holding objects costs {price}: {budget_account.objection()}"
        return ""

    def _budgets_of(self, user: str, project: str) -> tuple[BudgetAccount, ...]:
        owner = owner_of(self._site.config.groups, user, project)
        return self._site.server.broker.budget_accounts.of(owner)
