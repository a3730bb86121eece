"""Malicious messages of another site: as a buyer that dials us, as a seller that we dial.

Pure except for the keys with which it signs.
"""

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from federation.membership.gossip import (
    Bulletin,
    BulletinNotice,
    Bulletins,
    Gossip,
    MemberState,
    MemberUpdate,
    News,
    Ping,
    Topic,
)
from federation.membership.gossip import to_plain as gossip_plain
from federation.messages import deals
from federation.messages.adverts import PoolAdvert, SiteAdvert
from federation.messages.deals import Sealed
from federation.messages.messages import (
    BETWEEN_GATEWAYS,
    MESSAGES,
    Advert,
    GossipMessage,
    NeedFunction,
    PutFunction,
    SignedDeclarations,
    Unknown,
)
from federation.messages.payments import Payments
from federation.messages.reconciliation import (
    AskEntries,
    AskReconcile,
    Dispute,
    DisputeAnswer,
    Entries,
    Reconcile,
    Reconciled,
)
from federation.messages.reserving import Reserve, Reserved, Step
from federation.messages.slices import AskSlice, Slice
from federation.messages.wire import pack
from federation.payload import seal_call, seal_function
from federation.signed import grants
from federation.signed.envelopes import ALL, body_of
from federation.signed.grants import GrantBounds, Purpose
from federation.signed.strict import INTEGER_MAX
from gateway.peering.message_router import KIND
from gateway.trust.identity_store import Registry
from tests.fuzz.roles import PYTHON
from tests.fuzz.values import Level
from tests.fuzz.vocabulary import Remembered, Vocabulary, mutated, one_of

PRICE_NANOS: Final = 40_000_000
LEASE_S: Final = 30.0
DAY_MS: Final = 86_400_000
RESERVATIONS: Final = 20  # names of them that are kept, to be said again
ENVELOPES: Final = 50  # that are kept, to be said again
_SEALED_KINDS: Final = frozenset(each.kind for each in BETWEEN_GATEWAYS if each.row.sealed)


class MemberRole:
    """The common part of both: gossip, declarations, and sealed messages."""

    weights: dict[type[Any], float]

    def __init__(self, registry: Registry, other: str) -> None:
        self.registry, self.other = registry, other
        self.site = registry.site
        self._memory = memory = Remembered()
        self._function = seal_function(abs)
        self._numbers = 0
        self._versions = 0
        self._envelopes: list[bytes] = []
        named = {
            "contract": one_of(memory.contracts, self._some_name),
            "contracts": lambda chance: [self._some_name(chance) for _ in range(3)],
            "reservation": self._some_name,
            "digest": lambda chance: self._function.digest,
            "stamp": lambda chance: int(chance.random() * 1_000),
        }
        makers = {
            GossipMessage: self._gossip,
            SignedDeclarations: self._declarations,
            Advert: self._advert,
            PutFunction: lambda _: {"digest": self._function.digest, "body": self._function.body},
            Payments: lambda _: {"lines": [], "since_ms": 0, "heard": b""},
            Slice: self._slice,
            **self.makers(),
        }
        self._vocabulary = Vocabulary(self.weights, named, makers, memory)

    def makers(self) -> dict[type[Any], Callable[[random.Random], dict[str, Any]]]:
        """Of this side."""
        return {}

    def _some_name(self, chance: random.Random) -> str:
        known = self._memory.contracts
        if known and chance.random() < 0.7:
            return chance.choice(known)
        number = int(chance.random() * 1_000)
        return chance.choice((f"{self.site}-1-{number}", f"{self.other}-1-{number}", "x"))

    # --- saying --------------------------------------------------------------------------------

    def say(self, chance: random.Random, level: Level) -> bytes:
        """See roles.Role."""
        body = self._vocabulary.may_say(chance, level)
        data = pack(body)
        return self.sealed(data) if body["t"] in _SEALED_KINDS else data

    def breach(self, chance: random.Random) -> bytes:
        """See roles.Role. Half of it is about signatures: replayed, altered, or for another."""
        draw = chance.random()
        if draw < 0.4:
            return self._vocabulary.breach(chance)
        if draw < 0.6:
            return self.sealed(self._vocabulary.breach(chance))
        if draw < 0.7 and self._envelopes:
            return MESSAGES.encode(Sealed(chance.choice(self._envelopes)))
        data = pack(self._vocabulary.may_say(chance, Level.TAME))
        if draw < 0.8:
            return self.sealed(data, kind=chance.choice(("advert", "x")))
        if draw < 0.9:
            return self.sealed(data, to=chance.choice((ALL, "paris", self.site)))
        envelope = self.registry.sealer.seal(KIND, self.other, data, time.time())
        return MESSAGES.encode(Sealed(mutated(envelope, chance)))

    def sealed(self, data: bytes, kind: str = KIND, to: str = "") -> bytes:
        """Signed."""
        envelope = self.registry.sealer.seal(kind, to or self.other, data, time.time())
        if len(self._envelopes) < ENVELOPES or not self._numbers % 50:
            self._envelopes = [*self._envelopes[-ENVELOPES:], envelope]
        return MESSAGES.encode(Sealed(envelope))

    def tell(self, message: Any) -> bytes:
        """A message as it should travel."""
        data = MESSAGES.encode(message)
        return self.sealed(data) if message.kind in _SEALED_KINDS else data

    # --- gossip and declarations -----------------------------------------------------------------

    def advert(self) -> bytes:
        """An advert of a pool of ours, cheap and large, to all."""
        self._versions += 1
        version, utc_s = int(time.time() * 1000) + self._versions, time.time()
        pool = PoolAdvert("cheap", 1_000, PRICE_NANOS, "USD", 1_000, pythons=(PYTHON,))
        advert = SiteAdvert(self.site, version, utc_s, 600.0, (pool,))
        sealer = self.registry.sealer
        body = sealer.seal("advert", ALL, pack(advert.to_plain()), utc_s)
        notice = BulletinNotice(Topic(self.site, "advert"), self.registry.boot, version)
        plain = gossip_plain(Bulletins((Bulletin(notice, body),)))
        return MESSAGES.encode(GossipMessage(pack(plain)))

    def _gossip(self, chance: random.Random) -> dict[str, Any]:
        draw = chance.random()
        claims = tuple(
            MemberUpdate(
                chance.choice((self.site, self.other, "paris", "madrid", "berlin", "tokyo")),
                MemberState(int(chance.random() * 4)),
                chance.choice((0, 1, 2**31, 2**62, self.registry.boot << 20)),
                chance.choice(("", self.site, "paris")),
            )
            for _ in range(int(chance.random() * 4))
        )
        topic = Topic(chance.choice(("paris", "tokyo", self.site)), "advert")
        notices = (BulletinNotice(topic, chance.choice((0, 1, 2**62)), int(draw * 100)),)
        news = News(claims, notices if draw < 0.3 else ())
        if draw < 0.4:
            return {"body": pack(gossip_plain(Gossip(news)))}
        if draw < 0.9:
            return {"body": pack(gossip_plain(Ping(int(draw * 1_000), news)))}
        bodies = ["exchange", draw < 0.95, news.to_plain()], ["want", [["paris", "advert"]]]
        return {"body": pack(chance.choice(bodies))}

    def _declarations(self, chance: random.Random) -> dict[str, Any]:
        own = self.registry.words()
        some = [raw for _, raw in own] or [b"x"]
        junk = [chance.choice((b"", b"x" * 100, mutated(chance.choice(some), chance)))]
        cards = [chance.choice(some)] if chance.random() < 0.5 else junk
        return {"cards": cards, "expulsions": [], "farewells": [], "revocations": []}

    def _slice(self, chance: random.Random) -> dict[str, Any]:
        return {
            "budget": "shared",
            "account": 1,
            "life": 1,
            "number": 1,
            "granted": "1",
            "returned": "0",
            "lasts_s": 10.0,
            "since_ms": 0,
            "left": "1",
            "code": "",
            "reason": "",
        }

    def _advert(self, chance: random.Random) -> dict[str, Any]:
        self._versions += 1
        plain = {
            "site": self.site,
            "version": int(time.time() * 1000) + self._versions,
            "issued_s": time.time(),
            "valid_s": 10.0,
            "pools": [],
            "audience": self.other,
        }
        seal = self.registry.sealer.seal
        return {"envelope": seal("advert", self.other, pack(plain), time.time())}


class BuyerRole(MemberRole):
    """A buyer: it asks, holds, commits, forwards and pays, or stops half-way."""

    weights = {
        deals.AskQuote: 8.0,
        deals.Hold: 8.0,
        deals.Forward: 12.0,
        deals.Reclaim: 10.0,
        deals.Granted: 6.0,
        deals.Resume: 8.0,
        deals.Abandon: 6.0,
        deals.CloseContract: 6.0,
        AskEntries: 0.2,
        GossipMessage: 4.0,
        Advert: 0.5,
        SignedDeclarations: 1.0,
        PutFunction: 3.0,
        Unknown: 6.0,
        deals.Commit: 0.3,
        deals.Settle: 2.0,
        Reconcile: 0.3,
        Dispute: 0.3,
        Payments: 0.3,
        Reserve: 0.5,
        AskSlice: 1.0,
        Slice: 0.5,
    }

    def makers(self) -> dict[type[Any], Callable[[random.Random], dict[str, Any]]]:
        """See MemberRole."""
        return {
            deals.AskQuote: self._ask,
            deals.Settle: self._settle,
            deals.Forward: self._forward,
            AskSlice: self._ask_slice,
            Reserve: self._reserve,
            Reconcile: self._reconcile,
            Dispute: self._dispute,
            AskEntries: self._ask_entries,
        }

    def _name(self, number: int) -> str:
        return f"{self.site}-{self.registry.boot}-{number}"

    def _contract(self) -> str:
        self._numbers += 1
        self._memory.contracts.append(self._name(self._numbers))
        return self._memory.contracts[-1]

    def _reservation(self, chance: random.Random) -> str:
        """A name of one that was said before, of a contract, of the next contract, or its own."""
        draw = chance.random()
        if self._reservations and draw < 0.6:
            return chance.choice(self._reservations)
        name = self._name(self._numbers + 1)
        if self._memory.contracts and draw < 0.8:
            name = chance.choice(self._memory.contracts)
        elif draw < 0.9:
            self._numbers += 1
        self._reservations.append(name)
        return name

    def _ask(self, chance: random.Random) -> dict[str, Any]:
        contract, function = self._contract(), self._function.digest
        grant = b"junk"
        if chance.random() < 0.5:
            trust = self.registry.book
            user = chance.choice(("eve", "mallory"))
            purpose = Purpose(trust.federation, self.site, user, "risk", "job", function, "XXX")
            until_s = time.time() + 600.0
            bounds = GrantBounds(self.other, contract, INTEGER_MAX, until_s, 1, None, None)
            grant = grants.issue(purpose, bounds, self.registry.signing_key)
        else:
            user = "eve"
        return {
            "contract": contract,
            "pool": chance.choice(("", "local", "none")),
            "tasks": chance.choice((0, 1, 3, 10**6)),
            "task_s": chance.choice((None, 0.01, 1e6)),
            "function": function,
            "name": "fuzz",
            "user": user,
            "project": "risk",
            "priority": 0.0,
            "tags": {},
            "timeout_s": None,
            "python": PYTHON,
            "prints": False,
            "currency": "",
            "wishes": {},
            "path": [self.site],
            "hops_left": int(chance.random() * 3),
            "grant": grant,
            "preemptible": chance.random() < 0.1,
        }

    def _forward(self, chance: random.Random) -> dict[str, Any]:
        return {
            "contract": self._some_name(chance),
            "epoch": int(chance.random() * 50),
            "first": int(chance.random() * 50),
            "arguments": [seal_call((-2,), {})] * int(chance.random() * 3),
        }

    def _settle(self, chance: random.Random) -> dict[str, Any]:
        rows = [[int(chance.random() * 9), int(chance.random() * 9), int(chance.random() * 2)]]
        return {"contract": self._some_name(chance), "verdicts": rows}

    def _ask_slice(self, chance: random.Random) -> dict[str, Any]:
        amounts = dict.fromkeys(("returned", "spent", "before", "held", "want", "least"), "0")
        return {
            "budget": "shared",
            "account": 1,
            "life": self.registry.boot,
            "number": int(chance.random() * 100),
            "unit": "USD",
            "span": "day",
            "zone": "UTC",
            **amounts,
            "since_ms": 0,
            "want": str(10 ** int(chance.random() * 30)),
        }

    def _reserve(self, chance: random.Random) -> dict[str, Any]:
        from_ms = int(time.time() * 1000) + int(chance.random() * DAY_MS)
        return {
            "reservation": self._reservation(chance),
            "step": chance.choice([*Step]).value,
            "pool": chance.choice(("", "local")),
            "slots": 1 + int(chance.random() * 3),
            "from_ms": from_ms,
            "until_ms": from_ms + 3_600_000,
            "user": "",
            "project": "",
        }

    def _reconcile(self, chance: random.Random) -> dict[str, Any]:
        day_ms = (int(time.time() * 1000) // DAY_MS - 1 - int(chance.random() * 3)) * DAY_MS
        return {
            "first_ms": day_ms,
            "stop_ms": day_ms + DAY_MS,
            "is_final": False,
            "sums": {},
            "digest": chance.randbytes(32),
        }

    def _dispute(self, chance: random.Random) -> dict[str, Any]:
        return {"contract": self._some_name(chance), "deliveries": [[1, 0]], "reason": "fuzz"}

    def _ask_entries(self, chance: random.Random) -> dict[str, Any]:
        return {"contract": self._some_name(chance), "first_ms": 0, "stop_ms": DAY_MS}

    def react(self, message: Any, chance: random.Random) -> list[bytes]:
        """Go on with a contract, in order; one in ten stops here."""
        if chance.random() < 0.1:
            return []
        match message:
            case Sealed():
                return self._react_sealed(message, chance)
            case deals.Held():
                quote = self._quotes.pop(message.contract, None)
                if quote is None:
                    return []
                same = quote.pool, quote.price_nanos, quote.currency, LEASE_S
                terms = quote.tariff, quote.minimum_nanos, quote.step_ns
                return [self.tell(deals.Commit(quote.contract, *same, *terms))]
            case deals.Committed():
                put = PutFunction(self._function.digest, self._function.body)
                calls = [seal_call((-2,), {})] * (1 + int(chance.random() * 3))
                forward = deals.Forward(message.contract, 1, 0, calls)
                return [MESSAGES.encode(put), MESSAGES.encode(forward)]
            case deals.Renew():
                return [MESSAGES.encode(deals.Granted(message.stamp, message.contracts))]
            case NeedFunction():
                return [MESSAGES.encode(PutFunction(self._function.digest, self._function.body))]
        return []

    _quotes: dict[str, deals.Quote]
    _reservations: deque[str]

    def _react_sealed(self, message: Sealed, chance: random.Random) -> list[bytes]:
        inner = opened(message)
        match inner:
            case deals.Quote():
                self._quotes = {**dict(list(self._quotes.items())[-100:]), inner.contract: inner}
                return [MESSAGES.encode(deals.Hold(inner.contract))]
            case deals.Bill():
                rows = [[row[0], row[1], int(chance.random() < 0.8)] for row in inner.deliveries]
                settle = self.tell(deals.Settle(inner.contract, rows))
                close = MESSAGES.encode(deals.CloseContract(inner.contract))
                return [settle, close]
        return []

    def __init__(self, registry: Registry, other: str) -> None:
        self._quotes = {}
        self._reservations = deque(maxlen=RESERVATIONS)
        super().__init__(registry, other)


class SellerRole(MemberRole):
    """A seller: it quotes, holds and commits, and delivers at random."""

    weights = {
        deals.Quote: 0.0,
        deals.Decline: 8.0,
        deals.Held: 0.0,
        deals.Committed: 0.0,
        deals.Deliver: 0.0,
        deals.GivenBack: 10.0,
        deals.Renew: 8.0,
        deals.Bill: 0.0,
        deals.Holding: 0.0,
        deals.Closed: 0.0,
        NeedFunction: 4.0,
        Unknown: 8.0,
        GossipMessage: 6.0,
        Advert: 0.5,
        SignedDeclarations: 1.0,
        Payments: 0.3,
        Reserved: 0.0,
        Reconciled: 0.0,
        Entries: 0.0,
        DisputeAnswer: 0.0,
        AskReconcile: 0.0,
        Slice: 0.3,
    }

    def react(self, message: Any, chance: random.Random) -> list[bytes]:
        """Sell as requested; one in ten times say nothing."""
        if isinstance(message, Sealed):
            message = opened(message)
        if chance.random() < 0.1:
            return []
        match message:
            case deals.AskQuote():
                self._memory.contracts.append(message.contract)
                quote = deals.Quote(
                    *(message.contract, "cheap", max(1, message.tasks), 10, PRICE_NANOS, "USD"),
                    *(0.0, 0.1, 5.0, 5.0, message.preemptible, "cheap", "", PRICE_NANOS, 0, 0),
                )
                return [self.tell(quote)]
            case deals.Hold():
                return [MESSAGES.encode(deals.Held(message.contract, 5.0))]
            case deals.Commit():
                return [MESSAGES.encode(deals.Committed(message.contract))]
            case deals.Forward():
                return self._deliver(message, chance)
            case deals.Reclaim():
                back = deals.GivenBack(
                    message.contract, message.epoch, [[message.first, message.stop]]
                )
                return [MESSAGES.encode(back)]
            case deals.CloseContract() | deals.Abandon():
                return [MESSAGES.encode(deals.Closed(message.contract))]
        return []

    def _deliver(self, forward: deals.Forward, chance: random.Random) -> list[bytes]:
        tasks, at_ms = len(forward.arguments), int(time.time() * 1000)
        values = [b"\x80\x05K\x08."] * tasks
        delivery = deals.Deliver(
            *(forward.contract, forward.epoch, forward.first, values, [], []),
            *(1_000, 1_000, 1 << 20, 0, at_ms, []),
        )
        row = [forward.epoch, forward.first, tasks, 0, 1_000, at_ms]
        if chance.random() < 0.01:
            row[int(chance.random() * 6)] += 1  # a bill for something else
        bill = self.tell(deals.Bill(forward.contract, [row]))
        return [MESSAGES.encode(delivery), *([bill] if chance.random() < 0.8 else [])]


def opened(sealed: Sealed) -> Any:
    """The content of a gateway's envelope; the signature is not checked."""

    body = body_of(sealed.envelope)
    return MESSAGES.decode(body, len(body))
