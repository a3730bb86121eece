"""Service names: several gateways behind one name, by the SRV records of DNS (RFC 2782). Pure.

`srv://grid.example.com` stands for the gateways in the records of `_gridfed._tcp.grid.example.com`.
They are dialled by TLS alone, and their certificates must have the service name, not that of the
host in the record: an answer of DNS is not signed, and the party that forges one would otherwise
choose the name that its own certificate has (RFC 6125, section 6.2.1).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from federation.address import PORT_MAX, SERVICE_SCHEME, AddressError, is_service
from federation.chance import Chance
from federation.errors import GatewayUnreachable

PREFIX: Final = "_gridfed._tcp."
NAME_CHARS_MAX: Final = 253 - len(PREFIX)
RECORDS_MAX: Final = 16  # of one name, the best first; further ones are left out
_LABEL: Final = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_HOST_CHARS_MAX: Final = 253


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """An SRV record: a gateway of a service.

    Attributes:
        priority: gateways with the lowest one are used while one of them answers.
        weight: the share of clients, among gateways of one priority that are about as near.
        target: the host; "." says that the service has no gateway.
        port: the TCP port.
    """

    priority: int
    weight: int
    target: str
    port: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """The gateways that a client may go to.

    Attributes:
        groups: their addresses, at least one; those of the best priority first. Within a group the
            order decides between gateways that are about as near.
        certificate_names: by address, the name that its certificate must have, of those that a
            service name stands for; of any other it is the host.
    """

    groups: tuple[tuple[str, ...], ...]
    certificate_names: Mapping[str, str]


def service_name(address: str) -> str:
    """Return the name in `srv://NAME`, in lower case. Raises AddressError."""
    name = address.removeprefix(SERVICE_SCHEME).removesuffix(".").lower()
    if len(name) > NAME_CHARS_MAX or not _HOST.fullmatch(name):
        why = (
            "a service name has no port: its SRV records name the ports"
            if re.fullmatch(r".*:\d+", name)
            else "it must be a DNS name, as in srv://grid.example.com"
        )
        raise AddressError(f"address {address!a:.300}: {why}")
    return name


def question(name: str) -> str:
    """Return the name whose SRV records list the gateways of a service."""
    return PREFIX + name


def usable(name: str, records: Sequence[ServiceRecord]) -> list[ServiceRecord]:
    """Return the records that name a host and a port; GatewayUnreachable if none does.

    An answer of DNS comes from anybody: whatever could be no host is left out.
    """
    if len(records) == 1 and records[0].target == ".":
        raise GatewayUnreachable(
            f'{SERVICE_SCHEME}{name}: its SRV record has the target ".": the service has no '
            "gateway now: ask its operator, or name another gateway"
        )
    found = [
        record
        for record in records
        if 0 < record.port <= PORT_MAX
        and len(record.target) <= _HOST_CHARS_MAX
        and _HOST.fullmatch(record.target)
    ]
    if not found:
        raise GatewayUnreachable(
            f"{SERVICE_SCHEME}{name}: no SRV record of {question(name)} has a valid host and port: "
            "ask its operator, or name a gateway by its address"
        )
    return found


def in_groups(
    records: Iterable[ServiceRecord], random: Chance
) -> tuple[tuple[ServiceRecord, ...], ...]:
    """Group records by priority, the lowest first, each in the random order that weights make.

    That order is RFC 2782's: each next record is drawn with a chance in proportion to its weight;
    one of weight 0 has a very small chance while others have more.
    """
    by_priority: dict[int, list[ServiceRecord]] = {}
    for record in records:
        by_priority.setdefault(record.priority, []).append(record)
    return tuple(_by_weight(by_priority[priority], random) for priority in sorted(by_priority))


def _by_weight(records: list[ServiceRecord], random: Chance) -> tuple[ServiceRecord, ...]:
    random.shuffle(records)  # equal weights of 0 would else keep the order of the answer
    left = sorted(records, key=lambda record: record.weight > 0)
    found: list[ServiceRecord] = []
    while left:
        drawn = random.randrange(sum(record.weight for record in left) + 1)
        at = 0
        while drawn > left[at].weight:
            drawn -= left[at].weight
            at += 1
        found.append(left.pop(at))
    return tuple(found)


def candidates(
    addresses: Sequence[str], answers: Mapping[str, Sequence[ServiceRecord]], random: Chance
) -> Candidates:
    """Merge named addresses with the gateways of service names.

    Args:
        addresses: as the user named them, `srv://NAME` among them.
        answers: the usable records of each NAME that could be resolved.
        random: draws the order among equals.

    An address without a service name counts as one of the best priority, and so do the gateways
    of the lowest priority of each service.
    """
    ranked: list[list[str]] = [[]]
    names: dict[str, str] = {}
    plain = {address for address in addresses if not is_service(address)}
    seen: set[str] = set()

    def add(rank: int, address: str) -> None:
        if address not in seen:
            seen.add(address)
            ranked.extend([] for _ in range(rank + 1 - len(ranked)))
            ranked[rank].append(address)

    for each in addresses:
        if each in plain:
            add(0, each)
            continue
        name = service_name(each)
        kept = 0
        for rank, group in enumerate(in_groups(answers.get(name, ()), random)):
            for record in group[: RECORDS_MAX - kept]:
                address = f"tls+tcp://{record.target}:{record.port}"
                if address not in plain:  # the user named that host: its own name counts
                    names.setdefault(address, name)
                add(rank, address)
            kept += len(group)
            if kept >= RECORDS_MAX:
                break
    return Candidates(tuple(tuple(group) for group in ranked if group), names)
