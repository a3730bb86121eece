"""Makes the scheduler and the contracts of a site from its configuration."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gateway.config.site import SiteConfig, python_minor
from gateway.contracts.exchange import Exchange
from gateway.contracts.model.dealing import Permits
from gateway.runtime.prices import Prices
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.job_grants import GrantSigner
from gateway.scheduler.model.peer_queries import PeerQueries
from gateway.scheduler.quotas.accounts import ClientLimits
from gateway.trust.dealing_partners import Nobody
from gateway.trust.ticket_signer import TicketSigner
from gateway.trust.token_checker import TokenChecker
from policies.placement.placement import CapacityOffer


@dataclass(frozen=True, slots=True)
class Seat:
    """A site's place in its federation.

    `boot` counts the starts of the site, 0 in no federation. `permits` tells the sites that it
    deals with. `handles` yields the numbers of sessions and contracts, for all of a site.
    `token_checker` reads the tokens of clients and workers, and is None in no federation. `signer`
    issues and reads grants. `ticket_signer` signs tickets for objects, and is None where none move.
    """

    boot: int = 0
    permits: Permits = field(default_factory=Nobody)
    handles: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    token_checker: TokenChecker | None = None
    signer: GrantSigner = field(default_factory=Nobody)
    ticket_signer: TicketSigner | None = None


def make_broker(
    config: SiteConfig,
    boot: int,
    prices: Prices,
    budget_accounts: BudgetAccounts,
    peers: PeerQueries,
    *,
    keeps_output: bool,
) -> Broker:
    """Make the scheduler of a site, with all that its configuration says about its pools."""
    rules = config.rules
    tariffs = {name: each.tariff for name, each in prices.now.items()}
    return Broker(
        tariffs,
        {
            f"pool {pool.name}": CapacityOffer(
                f"pool {pool.name}",
                pool.name,
                pool.promised,
                (pool.scale and pool.scale.python) or python_minor(),
                tariffs[pool.name].currency,
                pool.takes_others,
                takes_inputs=not pool.is_delegated,
            )
            for pool in config.pools
            if pool.kind != "remote"  # a remote pool's workers bring all that it has
        },
        # Slack for work in flight while a client counts its results.
        ClientLimits(
            rules.tasks_max * 2,
            rules.bytes_max * 2,
            rules.function_wait_s,
            rules.jobs_max,
            rules.kept_bytes_max,
            rules.losses_max,
            rules.store_wait_s,
            rules.grace_s,
        ),
        boot,
        budget_accounts,
        peers,
        prices=prices.now,
        emissions={pool.name: pool.emissions for pool in config.pools},
        rules=config.rules_version,
        keeps_output=keeps_output,
    )


def make_exchange(
    config: SiteConfig, seat: Seat, broker: Broker, has_function: Callable[[bytes], bool]
) -> Exchange:
    """Make the contracts of a site; `has_function` tells whether a function is here."""
    return Exchange(
        config.name,
        seat.boot,
        broker,
        config.deals,
        config.preferences,
        seat.permits,
        {pool.name: pool.facts for pool in config.pools},
        seat.signer,
        seat.handles,
        has_function,
    )
