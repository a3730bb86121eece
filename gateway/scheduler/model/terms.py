"""The terms of a job: what its user asks of it, and what its site knows of them. Pure."""

from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from federation.clocks import UtcS
from federation.objects.labels import DataLabel
from federation.offers import show_time
from federation.users import site_of
from gateway.base.scopes import ObjectScope
from gateway.scheduler.model.job_grants import JobGrant
from policies.access.entitlements import Work
from policies.parties import Owner
from policies.placement.asks import Wishes
from policies.placement.environments import kind_of
from policies.placement.placement import FrozenTags, Need, Tags
from policies.tariffs import PriceClass, Tariff

HOPS_MAX: Final = 3  # how often a job may be forwarded


@dataclass(frozen=True, slots=True)
class Warrant:
    """The token or task pass by which a job was opened; its tasks' passes depend on it.

    `stays`: jobs that its tasks open may run at this site alone.
    """

    issuer: str = ""
    token: str = ""  # its id; empty: no token
    expires_s: UtcS = UtcS(inf)  # UTC
    stays: bool = False


NO_WARRANT: Final = Warrant()


@dataclass(frozen=True, slots=True)
class JobHold:
    """The order by which a job begins no task until it is released.

    Attributes:
        by: the user who ordered it.
        at_s: when, UTC.
        is_operators: whether the operator ordered it: then only the operator releases the job.
        is_carried: whether it was ordered at another gateway, from which the job's client came.
        site: the site of that gateway, by the client's word; empty: not known.
    """

    by: str
    at_s: UtcS
    is_operators: bool = False
    is_carried: bool = False
    site: str = ""

    def __str__(self) -> str:
        place = f"site {self.site}" if self.site else "another gateway"
        where = f" of {place}" if self.is_carried else ""
        who = f"{self.by}, the operator{where}," if self.is_operators else self.by
        if self.is_carried and not self.is_operators:
            who += f", at {place},"
        return f"held by {who} since {show_time(self.at_s)}"


@dataclass(frozen=True, slots=True)
class CarriedHold:
    """A client's word of the last order about the hold of its job.

    Attributes:
        hold: None: the job was released.
        is_own: whether it came from the address of this gateway, where another one may have been.
        at_s: when the order was given, UTC, by the clock of its gateway.
    """

    hold: JobHold | None
    is_own: bool = False
    at_s: UtcS = UtcS(0.0)

    def over(self, own: JobHold | None, *, is_known: bool = True) -> JobHold | None:
        """Return the hold of the job here, given the one that this gateway had on it.

        A client can't release what the operator of this gateway holds. Of its own orders a gateway
        knows best: the client may have missed one. Of two gateways' orders the newer one counts.

        Args:
            own: the hold on the job here.
            is_known: whether the job was here before. Otherwise the order is another gateway's,
                also if that one had this address.
        """
        is_ours = own is not None and own.is_operators and not own.is_carried
        is_newer = own is not None and own.at_s > self.at_s
        return own if is_known and (is_ours or self.is_own or is_newer) else self.hold


@dataclass(frozen=True, slots=True)
class GivenPriority:
    """The priority that the operator gave a job, in place of its user's.

    Entitlements limit the priorities of users: they don't apply to this one.
    """

    priority: float
    by: str


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The specification of a job: one function and its terms."""

    name: str
    function: bytes
    detached: bool
    user: str
    project: str
    priority: float
    tags: Tags
    timeout_s: float | None
    retries: int
    max_cost_nanos: int | None
    currency: str | None
    python: str
    prints: bool
    wishes: Wishes = field(default_factory=Wishes)
    # Of a job that another site sent: its price, and the sites that it came through.
    price: Tariff | None = None
    path: tuple[str, ...] = ()
    given: JobGrant | None = None  # and the rights given by its user
    hops_left: int = HOPS_MAX
    pool: str = ""  # the only pool of ours that it may run in; empty: any
    group: str = ""  # its user's first, as configured here; empty: none
    more_groups: tuple[str, ...] = ()  # and the further ones, whose rights it has
    price_class: PriceClass = "guaranteed"
    tasks: int | None = None  # their number, if announced by its client
    task_s: float | None = None  # and their approximate duration
    slots_sold: int = 0  # of a job that another site sent to one of our pools
    warrant: Warrant = NO_WARRANT
    hold: JobHold | None = None  # while it is held, no task of it begins
    given_priority: GivenPriority | None = None
    results: str = ""  # "auto" or "ref": large, or all, results are left here as objects
    far_results: bool = False  # … also those of other sites, once they were fetched to here
    has_inputs: bool = False  # calls of it have results of others among their arguments
    is_probe: bool = False  # the operator tests a pool with it: no entitlement applies

    def narrowed(self, label: DataLabel) -> "JobSpec":
        """Return these terms with a label of data that its calls read."""
        return replace(self, wishes=replace(self.wishes, label=self.wishes.label.within(label)))

    @property
    def rank_priority(self) -> float:
        """The priority by which its tasks are served: the operator's, or else its user's."""
        return self.priority if self.given_priority is None else self.given_priority.priority

    @property
    def need(self) -> Need:
        """The requirements on a worker."""
        kind = kind_of(self.wishes.environment)
        return Need(
            *(FrozenTags(self.tags), self.python, self.currency, kind, bool(self.origin)),
            has_inputs=self.has_inputs,
            label=self.wishes.label,
        )

    @property
    def origin(self) -> str:
        """The site whose code it is, as far as we deal with it; empty: ours.

        Of a job that another site sent it is that neighbour. Of a foreign user, with the token of a
        welcome site, and of jobs that its tasks submit, it is that site.
        """
        return self.path[-1] if self.path else site_of(self.user)

    @property
    def scope(self) -> str:
        """The project of its objects here; of another site's job one that no user can name."""
        return str(ObjectScope(self.project, self.path[-1] if self.path else ""))

    @property
    def whose(self) -> Owner:
        """The principal for rules and books; for a job of another site, it includes the neighbour.

        A foreign user's job is ours here (docs/entitlements.md): only the user pays for it.
        """
        site = self.path[-1] if self.path else ""
        return Owner(self.user, self.group, self.project, site, frozenset(self.more_groups))

    @property
    def work(self) -> Work:
        """The principal with priority and price class, for entitlements."""
        return Work(self.whose, self.priority, self.price_class, self.is_probe)

    @property
    def reservation(self) -> str:
        """The reservation here whose slots another site's job was sold; empty: none."""
        return "" if self.price is None else self.price.reservation
