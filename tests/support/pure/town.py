"""Sites as pure objects, for tests: brokers with their exchanges, joined by lists of messages.

Time stands still until `pass_time`; a site's workers report when they are told to.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import count
from math import inf
from typing import Any

from support.pure.broker import after_its_time, spec
from support.pure.moves import fact_of

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.messages import Assign, Recall, Results
from federation.messages.printed import STDERR
from federation.messages.transferring import Receipts
from federation.messages.wire import pack, unpack
from federation.objects.references import with_head
from gateway.config.budgets import NO_CREDIT, Credit
from gateway.config.contracts import DealRules
from gateway.config.pools import PoolFacts
from gateway.contracts.exchange import Exchange
from gateway.contracts.model.moved import MoveProof
from gateway.ledger.db import records
from gateway.ledger.db.contracts.records import ContractRow, PostingRow
from gateway.runtime.kernel import Kernel
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.budget_accounts import BudgetAccounts, BudgetSpent
from gateway.scheduler.model.effects import (
    AnswerBill,
    Effect,
    Expel,
    Harden,
    KeepOutput,
    PeerSide,
    PullObjects,
    SendFunction,
    SendToClient,
    SendToSite,
    SendToWorker,
    TakeObjects,
    Write,
)
from gateway.scheduler.model.job_grants import GrantTerms, JobGrant, NotGranted
from gateway.scheduler.quotas.accounts import ClientLimits
from gateway.scheduler.quotas.spending import used_of
from policies.costs.budgets import Budget
from policies.parties import Owner
from policies.placement.asks import Preferences
from policies.tariffs import Tariff

RULES = DealRules(lease_s=8.0, grace_s=2.0, plan_s=0.25)
UTC_S = 1_000_000.0
CHEAP, DEAR = 10**7, 10**9  # nano-units of a slot-hour


class Everybody:
    """Permits that permit: all sites of the town deal with each other."""

    def __init__(self, town: "Town", site: str) -> None:
        self._town = town
        self._site = site
        self.refused = ""
        self.strangers: set[str] = set()
        self.unread: set[str] = set()  # whose results are not accepted

    def runners(self, project: str) -> set[str]:
        return set(self._town.sites) - {self._site} - self.strangers

    def barred(self, project: str) -> set[str]:
        return set()

    def reach(self, target: str, project: str) -> set[str]:
        return self.readable() | {target}

    def readable(self) -> set[str]:
        return set(self._town.sites) - self.unread

    def may_send(self, *_: Any) -> str:
        return self.refused


class PlainGrantSigner:
    """Grants without keys: each block carries a hash of its signer's name in place of a signature.

    It passes the contract suite of the real one (tests/contracts/test_grant_signer.py).
    """

    def __init__(self, site: str) -> None:
        self._site = site
        self._shown: set[bytes] = set()

    def issue(self, grant_terms: GrantTerms) -> bytes:
        return pack([self._block(grant_terms, b"")])

    def narrow(self, given: JobGrant, grant_terms: GrantTerms, utc_s: float) -> bytes:
        wide = given.grant_terms
        if utc_s >= wide.expires_s:
            raise NotGranted("expired", "it has expired")
        grant_terms = replace(
            grant_terms,
            user=wide.user,
            job=wide.job,
            project=wide.project,
            function=wide.function,
            expires_s=min(grant_terms.expires_s, wide.expires_s),
            regions=wide.regions if grant_terms.regions is None else grant_terms.regions,
            sites=wide.sites if grant_terms.sites is None else grant_terms.sites,
        )
        _check_narrowing(wide, grant_terms, given.path)
        blocks = unpack(given.raw, 1 << 20)
        return pack([*blocks, self._block(grant_terms, pack(blocks))])

    def check(self, buyer: str, raw: bytes, utc_s: float) -> JobGrant:
        try:
            blocks = unpack(raw, 1 << 20)
            granted = [_read_grant_terms(block[1]) for block in blocks]
            grant_terms = granted[-1]
        except (ProtocolError, TypeError, ValueError, KeyError, IndexError) as error:
            raise NotGranted("altered", "it is no grant") from error
        path: list[str] = []
        for at, ((signer, body, mark), each) in enumerate(zip(blocks, granted, strict=True)):
            before = pack(blocks[:at]) if at else b""
            if mark != _mark(signer, body, before) or (at and signer != granted[at - 1].target):
                raise NotGranted("bad-signature", "a block that another has made")
            path.append(signer)
            if at:
                _check_narrowing(granted[at - 1], each, tuple(path[:-1]))
        if grant_terms.target != self._site:
            raise NotGranted("wrong-destination", f"it is for {grant_terms.target}")
        if path[-1] != buyer:
            raise NotGranted("wrong-site", f"it is of {path[-1]}")
        if grant_terms.expires_s <= utc_s:
            raise NotGranted("expired", "it has expired")
        if raw in self._shown:
            raise NotGranted("replayed", "it was shown before")
        self._shown.add(raw)
        return JobGrant(grant_terms, tuple(path), raw)

    def _block(self, grant_terms: GrantTerms, before: bytes) -> list[Any]:
        body = {
            key: sorted(value) if isinstance(value, frozenset) else value
            for key, value in asdict(grant_terms).items()
        }
        return [self._site, body, _mark(self._site, body, before)]


def _read_grant_terms(body: dict[str, Any]) -> GrantTerms:
    sets = {
        key: None if body[key] is None else frozenset(body[key]) for key in ("regions", "sites")
    }
    return GrantTerms(**(body | sets))


def _mark(signer: str, body: Any, before: bytes) -> bytes:
    return sha256(pack([signer, body, before])).digest()


def _check_narrowing(wide: GrantTerms, narrow: GrantTerms, path: tuple[str, ...]) -> None:
    most = (
        each.max_cost_nanos if each.max_cost_nanos is not None else inf for each in (wide, narrow)
    )
    is_wider = (
        next(most) < next(most)
        or narrow.expires_s > wide.expires_s
        or narrow.hops_left >= wide.hops_left
        or not (wide.regions is None or narrow.regions <= wide.regions)
        or not (wide.sites is None or narrow.sites <= wide.sites)
        or (narrow.sites is not None and narrow.target not in narrow.sites)
    )
    if narrow.target in (*path, wide.target):
        raise NotGranted("loop", "it has been there")
    if is_wider:
        raise NotGranted("widened", "it is wider than the one before")


class TownSite:
    """One site: its broker, its books, and workers that act when told."""

    def __init__(
        self,
        town: "Town",
        name: str,
        price_nanos: int,
        boot: int = 1,
        budgets: Iterable[Budget] = (),
        credit: Credit = NO_CREDIT,
    ) -> None:
        self.town = town
        self.budgets = tuple(budgets)
        self.credit = credit
        self.name = name
        self.price_nanos = price_nanos
        self.books: list[records.Record] = []
        self.hardened = 0  # how many of them would survive a power cut
        self.results: dict[int, list[Results]] = defaultdict(list)
        self.has_functions = True
        self.says = ""  # what each task prints to stderr
        self.output: list[tuple[int, int, str]] = []  # that is kept: task, stream, text
        self.told: list[Any] = []
        self.let_go: list[tuple[bytes, ...]] = []  # results that were handed over, or dropped
        self.pulls: list[PullObjects] = []  # objects that it would fetch
        self.at_work: dict[int, list[Assign]] = defaultdict(list)
        self.workers = 0
        self.permits = Everybody(town, name)
        self.signer = PlainGrantSigner(name)
        self.start(boot)

    def start(self, boot: int) -> None:
        tariff = Tariff(self.price_nanos, "USD", "test")
        self.boot = boot
        budget_accounts = BudgetAccounts(self.budgets, self.credit, UTC_S + self.town.now_s)
        self.kernel = Kernel(
            lambda peers: Broker(
                *({"local": tariff}, {}, ClientLimits(), boot, budget_accounts, peers),
                keeps_output=True,
            ),
            lambda broker: Exchange(
                self.name,
                boot,
                broker,
                self.town.rules,
                self.town.preferences,
                self.permits,
                {"local": PoolFacts()},
                self.signer,
                count(1_000),  # workers and clients have lower ones
                lambda _digest: self.has_functions,
            ),
        )
        self.broker, self.exchange = self.kernel.broker, self.kernel.exchange
        self.know_spending()

    def know_spending(self) -> None:
        """As the gateway server does, from the spending in the books."""
        utc_s, budget_accounts = UTC_S + self.town.now_s, self.broker.budget_accounts
        lent = [each for each in self.books if isinstance(each, records.SliceLent)]
        held = [each for each in self.books if isinstance(each, records.SliceHeld)]
        accounts = {each: self.spent(each.budget, each.account / 1000) for each in held}
        known = {each.budget: spent for each, spent in accounts.items()}
        for name, budget_account in budget_accounts.own.items():
            is_ours = not budget_account.budget.owner
            known.setdefault(name, self.spent(name, 0.0) if is_ours else BudgetSpent(0, 0))
        self.broker.handle(events.SpendingKnown(known, {}), utc_s)
        self.exchange.lending.recover({(e.site, e.account): e for e in lent}.values(), utc_s)
        self.exchange.borrowing.recover(accounts, utc_s)

    def spent(self, name: str, since_s: float) -> BudgetSpent:
        """The spending of a budget in the books."""
        budget = self.broker.budget_accounts.own[name].budget
        period = budget.period_at(UTC_S + self.town.now_s)
        total = now = 0
        for each in self.books:
            if not isinstance(each, records.UsageRecord) or each.ended_at_s < since_s:
                continue
            whose = Owner(each.user, each.group, each.project, each.origin)
            if budget.covers(whose):
                nanos = used_of(self.broker.budget_accounts.own[name], each)
                total += nanos
                now += nanos if period is None or each.ended_at_s >= period.start_at_s else 0
        return BudgetSpent(total, now)

    def do(self, *happened: events.Event) -> None:
        effects = self.kernel.act(happened, self.town.now_s, UTC_S + self.town.now_s)
        self._perform(effects)

    def join(self, slots: int, **tags: Any) -> int:
        self.workers += 1
        name = f"w{self.workers}"
        self.do(events.WorkerJoined(self.workers, name, "local", slots, tags, "3.11"))
        return self.workers

    def submit(
        self,
        tasks: int,
        job: str = "j",
        client: int = 1,
        objects: Sequence[bytes] = (),
        **changes: Any,
    ) -> None:
        """Submit a job, all of whose calls refer to these objects."""
        if client not in self.broker.clients:
            self.do(events.ClientJoined(client, "ann"))
        self.do(events.JobOpened(client, job, spec(**changes)))
        calls = [with_head(b"%d" % at, objects) for at in range(tasks)]
        self.do(events.TasksArrived(client, job, 0, calls, tuple(objects)))
        self.do(events.JobClosed(client, job, tasks))

    def work(self, most: int = 1 << 30, task_s: float = 0.001) -> int:
        """Let the workers report up to so many tasks; how many they did."""
        done = 0
        for worker, assigned in self.at_work.items():
            for order in list(assigned):
                if order not in assigned:
                    continue  # it was recalled when another was reported
                count = min(len(order.arguments), most - done)
                if count <= 0:
                    return done
                done += count
                self._report(worker, order, count, task_s)
        return done

    def _report(self, worker: int, order: Assign, count: int, task_s: float) -> None:
        queue = self.at_work[worker]
        at = queue.index(order)
        left = order.arguments[count:]
        if left:
            first = order.first + count
            queue[at] = replace(order, first=first, arguments=left, timeout_s=None)
        else:
            del queue[at]
        values = [b"r" + each for each in order.arguments[:count]]
        wall_ns = round(task_s * 1e9) * count
        used = (wall_ns, wall_ns)
        prints = [[at, self.says, STDERR] for at in range(count)] if order.prints else []
        report = events.Reported(worker, order.assignment, order.first, values, [], prints, *used)
        self.do(after_its_time(self.broker, report))

    def _perform(self, effects: list[Effect]) -> None:  # noqa: C901 - one match
        for effect in effects:
            match effect:
                case Write():
                    self.books.append(effect.record)
                    self.broker.budget_accounts.note(effect.record)
                case Harden():
                    self.hardened = len(self.books)
                case SendToSite():
                    self._say(effect)
                case AnswerBill():
                    self._answer(effect)
                case SendFunction():
                    self.town.functions.append((self.name, effect.site, effect.digest))
                case SendToClient():
                    self.told.append(effect.message)
                    if isinstance(effect.message, Results):
                        self.results[effect.client].append(effect.message)
                case SendToWorker():
                    self._order(effect)
                case PullObjects():
                    self.pulls.append(effect)
                case TakeObjects():
                    self.let_go.append(effect.digests)
                case KeepOutput():
                    self.output += effect.pieces
                case Expel():
                    raise AssertionError(f"{self.name} expels {effect.peer}: {effect.reason}")

    def _order(self, order: SendToWorker) -> None:
        match order.message:
            case Assign():
                self.at_work[order.worker].append(order.message)
            case Recall():
                self._recall(order.worker, order.message)

    def _say(self, say: SendToSite) -> None:
        if isinstance(say.message, deals.Bill):
            self._check_hardened(say.message)
        self.town.carry(self.name, say)

    def _check_hardened(self, bill: deals.Bill) -> None:
        """Billed usage must survive a power cut."""
        billed = {(bill.contract, *row[:2]) for row in bill.deliveries}
        soft = {
            (each.contract, each.epoch, each.first)
            for each in self.books[self.hardened :]
            if isinstance(each, records.Posted) and each.side == "sell"
        }
        assert not billed & soft, f"{self.name} may lose what it bills: {billed & soft}"

    def _answer(self, answer: AnswerBill) -> None:
        """As the outbox does, from the books."""
        bill, posted = answer.bill, self.postings("buy")
        verdicts = []
        for epoch, first, tasks, cost, _, _ in bill.deliveries:
            row = posted.get((bill.contract, epoch, first))
            verdicts.append([epoch, first, int(row is not None and row[:2] == [tasks, cost])])
            if verdicts[-1][2] and row[2] == "pending":
                self.books.append(
                    records.PostingSettled(
                        contract=bill.contract,
                        side="buy",
                        site=answer.site,
                        epoch=epoch,
                        first=first,
                        state="post",
                        cost_nanos=cost,
                        currency="EUR",
                        settled_at_s=answer.utc_s,
                    )
                )
        settle = SendToSite(answer.site, PeerSide.SELLER, deals.Settle(bill.contract, verdicts))
        self.town.carry(self.name, settle)

    def recover(self, boot: int, *happened: events.Event) -> None:
        """Start again with nothing but the books."""
        self.at_work.clear()
        self.start(boot)
        utc_s = UTC_S + self.town.now_s
        for event in happened:  # as the gateway server does: nothing is planned before all is known
            self._perform(self.broker.handle(event, utc_s))
        ended = {
            (each.side, each.contract)
            for each in self.books
            if isinstance(each, records.ContractEnded)
        }
        found = []
        for each in self.books:
            if isinstance(each, records.ContractOpened):
                if (each.side, each.contract) in ended:
                    continue
                row, states = ContractRow(**asdict(each)), self.postings(each.side)
                postings = [
                    PostingRow(
                        *(posted.epoch, posted.first, posted.tasks, posted.cost_nanos),
                        *(states[posted.contract, posted.epoch, posted.first][2],),
                        *(posted.wall_ns, posted.posted_at_s),
                    )
                    for posted in self.books
                    if isinstance(posted, records.Posted)
                    and (posted.side, posted.contract) == (each.side, each.contract)
                ]
                found.append((row, postings))
        names = [
            (each.site, each.contract)
            for each in self.books
            if isinstance(each, records.ContractOpened) and each.side == "sell"
        ]
        self.exchange.recover(found, names, self.town.now_s, (), self._proofs)
        self.do()

    def _recall(self, worker: int, recall: Recall) -> None:
        """Nothing of ours ever starts before it is reported: all can be given back."""
        for order in list(self.at_work[worker]):
            if order.assignment != recall.assignment:
                continue
            low = max(order.first, recall.first)
            high = min(order.first + len(order.arguments), recall.stop)
            self.at_work[worker].remove(order)
            kept = order.arguments[: low - order.first]
            if kept:
                self.at_work[worker].append(
                    Assign(
                        order.assignment, order.job, order.function, order.first, kept, None, False
                    )
                )
            self.town.later.append(
                (self, events.HandedBack(worker, recall.assignment, ((low, high),)))
            )

    def answers(self, client: int = 1) -> dict[int, bytes]:
        """Task → result, of everything that a client was told; no task twice."""
        found: dict[int, bytes] = {}
        for part in self.results[client]:
            for at, value in enumerate(part.values, part.first):
                assert at not in found, f"task {at} was told twice"
                found[at] = value
        return found

    def _proofs(self, side: str, contract: str) -> dict[tuple[int, int], tuple[bytes, bytes]]:
        return {
            (each.epoch, each.first): (each.ticket, each.receipt)
            for each in self.books
            if isinstance(each, records.MoveProved)
            and (each.side, each.contract) == (side, contract)
        }

    def postings(self, side: str) -> dict[tuple[str, int, int], list[Any]]:
        """(contract, epoch, first) → [tasks, cost, state] as the books have it."""
        found: dict[tuple[str, int, int], list[Any]] = {}
        for record in self.books:
            match record:
                case records.Posted(side=where) if where == side:
                    key = (record.contract, record.epoch, record.first)
                    assert key not in found, f"posted twice: {key}"
                    found[key] = [record.tasks, record.cost_nanos, "pending"]
                case records.PostingSettled(side=where) if where == side:
                    row = found[record.contract, record.epoch, record.first]
                    assert row[2] == "pending"
                    row[2] = str(record.state)
        return found


def never() -> bool:
    return False


class Town:
    """Sites that know each other, and the messages between them.

    `in_frames`: messages sent without a pause are handled before their results are sent, as a
    gateway handles all messages of a frame.
    """

    def __init__(
        self, prefer_own_s: float = 0.0, rules: DealRules = RULES, *, in_frames: bool = True
    ) -> None:
        self.now_s = 0.0
        self.rules = rules
        self.preferences = Preferences(prefer_own_s=prefer_own_s)
        self.sites: dict[str, TownSite] = {}
        self.mail: deque[tuple[str, str, PeerSide, bytes, Any]] = deque()
        self.functions: list[tuple[str, str, bytes]] = []
        self.later: list[tuple[TownSite, events.Event]] = []
        self.cut: set[frozenset[str]] = set()
        self.said: list[tuple[str, str, Any]] = []
        self.in_frames = in_frames
        self.delays_s: dict[type, float] = {}  # how long messages of a kind are on their way
        self._delayed: list[tuple[float, tuple[str, str, PeerSide, bytes, Any]]] = []

    def build(
        self,
        name: str,
        price: int,
        slots: int,
        budgets: Iterable[Budget] = (),
        credit: Credit = NO_CREDIT,
        **tags: Any,
    ) -> TownSite:
        site = TownSite(self, name, price, budgets=budgets, credit=credit)
        self.sites[name] = site
        if slots:
            site.join(slots, **tags)
        return site

    def carry(self, sender: str, say: SendToSite) -> None:
        if frozenset((sender, say.site)) in self.cut:
            return
        self.said.append((sender, say.site, say.message))
        letter = (sender, say.site, say.side, pack(0), say.message)
        delay_s = self.delays_s.get(type(say.message))
        if delay_s is None:
            self.mail.append(letter)
        else:
            self._delayed.append((self.now_s + delay_s, letter))

    def show(self, hidden: Container[tuple[str, str]] = ()) -> None:
        """Each site learns each other's advert, except the hidden ones: (owner, learner)."""
        utc_s = UTC_S + self.now_s
        for site in self.sites.values():
            advert = site.exchange.show(utc_s)
            for other in self.sites.values():
                if (site.name, other.name) not in hidden:
                    other.exchange.learn(advert, utc_s)

    def deliver(self, until: Callable[[], object] = never) -> None:
        """Carry messages until none is left, or a condition holds."""
        while (self.mail or self.later) and not until():
            while self.later:
                site, event = self.later.pop(0)
                site.do(event)
            if not self.mail:
                continue
            sender, receiver, side, _, message = self.mail.popleft()
            site = self.sites.get(receiver)
            if site is None or frozenset((sender, receiver)) in self.cut:
                continue
            # To whom it is our seller, we are the buyer.
            theirs = PeerSide.BUYER if side is PeerSide.SELLER else PeerSide.SELLER
            if isinstance(message, Receipts):
                for receipt, ticket in zip(message.receipts, message.tickets, strict=True):
                    proof = MoveProof(ticket, receipt)
                    site.exchange.moved(fact_of(receipt), proof, UTC_S + self.now_s)
            else:
                site.kernel.hear(sender, theirs, message, self.now_s, UTC_S + self.now_s)
            if not self._is_next(sender, receiver) or until():
                site.do()

    def _is_next(self, sender: str, receiver: str) -> bool:
        """Whether the next message is in the same frame."""
        is_cut = frozenset((sender, receiver)) in self.cut
        is_next = bool(self.mail) and self.mail[0][:2] == (sender, receiver)
        return self.in_frames and is_next and not is_cut and not self.later

    def pass_time(
        self, seconds: float, step_s: float = 0.05, until: Callable[[], object] = never
    ) -> None:
        end_at_s = self.now_s + seconds
        while self.now_s < end_at_s - 1e-9 and not until():
            self.now_s += step_s
            self.mail += [letter for due_s, letter in self._delayed if due_s <= self.now_s]
            self._delayed = [each for each in self._delayed if each[0] > self.now_s]
            for site in self.sites.values():
                site.kernel.tick(self.now_s, UTC_S + self.now_s)
                site.do(events.Ticked())
            self.deliver(until)

    def run(self, until: Any, seconds: float = 60.0, task_s: float = 0.001) -> None:
        """Let all sites work until a condition holds."""
        end_at_s = self.now_s + seconds
        while not until():
            assert self.now_s < end_at_s, "it does not come to an end"
            self.deliver()
            for site in self.sites.values():
                site.work(task_s=task_s)
            self.deliver()
            self.pass_time(0.05)


def dear_and_cheap(rules: DealRules = RULES, *, in_frames: bool = True) -> Town:
    """London, dear and small, and Paris, cheap and larger, that know each other."""
    town = Town(rules=rules, in_frames=in_frames)
    town.build("london", DEAR, 1)
    town.build("paris", CHEAP, 4)
    town.show()
    return town
