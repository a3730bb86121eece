"""Objects that moved under a contract, and their deliveries in the books of both sites. Pure.

A move is a delivery without tasks, in epoch MOVE_EPOCH, which no forward has: so bills, verdicts,
statements, comparisons and disputes treat it as any other. Both sites make the same delivery from
the same receipt: its number comes from contract, direction and object, its cost from the
receipt and the price of the contract, and its time is that of the receipt.

An object is paid once in each direction under a contract, however often it is fetched: a site that
lost it and fetches it again pays nothing more, and a receipt that comes twice counts once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from federation.clocks import UtcS
from federation.messages.contracts import Delivery
from federation.messages.transferring import Receipts
from federation.objects.manifests import digest_text
from gateway.base.scopes import ObjectScope
from gateway.ledger.db.usage.records import UsageRecord
from policies.costs.moving import charge_nanos
from policies.tariffs import Tariff

MOVE_EPOCH: Final = 0  # epochs of forwards are above it
MOVED_NAME: Final = "objects moved"
RECEIVE: Final = "receive"
SEND: Final = "send"
PROOFS_MAX: Final = 100  # in one message: it must fit into an envelope
_NUMBER_BIT: Final = 1 << 62  # tasks have smaller numbers
_NUMBER_BITS: Final = 62


@dataclass(frozen=True, slots=True)
class MovedObject:
    """An object that has moved between two sites, by the receiver's receipt.

    Attributes:
        ticket: its id.
        source, to: the sites.
        scope: the project at the source.
        contract: the buyer's name for it.
        moved_bytes: that have arrived; equal blocks move once, so it may be less than the size.
        at_ms: when, by the receiver's clock, milliseconds since 1970.
    """

    ticket: str
    source: str
    to: str
    digest: bytes
    scope: str
    user: str
    contract: str
    moved_bytes: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class MoveProof:
    """A ticket of the source and the receipt of the receiver, as they were signed."""

    ticket: bytes
    receipt: bytes


NO_PROOFS: Final[Mapping[tuple[int, int], MoveProof]] = MappingProxyType({})


def receipts_of(proofs: Iterable[MoveProof]) -> Iterator[Receipts]:
    """Yield the messages that have these proofs, PROOFS_MAX in each."""
    left = list(proofs)
    while left:
        part, left = left[:PROOFS_MAX], left[PROOFS_MAX:]
        yield Receipts([each.receipt for each in part], [each.ticket for each in part])


def number_of(contract: str, digest: bytes, direction: str) -> int:
    """Return the number of an object's move under a contract, in one direction.

    The contract counts too: a buyer's job has one row in its usage for each number.
    """
    found = blake2b(digest + f"{direction} {contract}".encode(), digest_size=8).digest()
    return _NUMBER_BIT | (int.from_bytes(found, "big") >> (64 - _NUMBER_BITS))


def direction_of(fact: MovedObject, seller: str) -> str:
    """Return the direction of a move, as the seller of its contract has it."""
    return RECEIVE if fact.to == seller else SEND


def price_of(tariff: Tariff, direction: str) -> int:
    """Return the price of a GB under a contract in one direction, in nano-units."""
    return tariff.receive_nanos if direction == RECEIVE else tariff.send_nanos


def delivery_of(fact: MovedObject, tariff: Tariff, seller: str) -> Delivery | None:
    """Return the delivery of a move that costs something, as both sites book it; else None."""
    direction = direction_of(fact, seller)
    cost_nanos = charge_nanos(price_of(tariff, direction), fact.moved_bytes)
    if not cost_nanos:
        return None
    number = number_of(fact.contract, fact.digest, direction)
    return Delivery(MOVE_EPOCH, number, number, cost_nanos, 0, fact.at_ms)


def usage_of(
    fact: MovedObject, delivery: Delivery, tariff: Tariff, seller: str, job: str, pool: str
) -> UsageRecord:
    """Return the usage record of a move that is paid: of its job, at the place of the contract.

    `fact` has the user and the project of the job in the books of this site.
    """
    at_s = UtcS(delivery.at_ms / 1000)
    return replace(
        free_record(fact, job, delivery.first, pool, at_s, tariff.currency),
        price_nanos=price_of(tariff, direction_of(fact, seller)),
        tariff=tariff.version,
        cost_nanos=delivery.cost_nanos,
        price_class=tariff.price_class,
        window=tariff.window,
        rules=tariff.rules,
    )


def free_record(
    fact: MovedObject, job: str, first: int, pool: str, at_s: UtcS, currency: str
) -> UsageRecord:
    """Return the usage record of a move that costs nothing, in the books of this site."""
    return UsageRecord(
        job=job,
        first=first,
        tasks=0,
        attempt=1,
        user=fact.user,
        project=ObjectScope.read(fact.scope).project,
        name=MOVED_NAME,
        pool=pool,
        worker=digest_text(fact.digest),
        state="ok",
        started_at_s=at_s,
        ended_at_s=at_s,
        wall_ns=0,
        cpu_ns=0,
        peak_memory_bytes=0,
        price_nanos=0,
        currency=currency,
        tariff="",
        cost_nanos=0,
        kind="moved",
        moved_bytes=fact.moved_bytes,
    )
