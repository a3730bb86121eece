"""Looks up the gateways of service names (`srv://NAME`) in DNS; needs the extra `dns`.

Which gateways an answer stands for, and in which order, is decided in service_names.
"""

import logging
import os
import random
import time
from collections.abc import Sequence
from typing import Final

from federation.address import SERVICE_SCHEME, AddressError, check_address, is_service, plain_ip
from federation.engine.dialling.service_names import (
    Candidates,
    ServiceRecord,
    candidates,
    question,
    service_name,
    usable,
)
from federation.errors import GatewayUnreachable, GridError
from federation.words import duration_text

SERVER_VARIABLE: Final = "GRIDFED_DNS_SERVER"
WITHIN_MIN_S: Final = 0.5
_DNS_PORT: Final = 53
_INSTEAD: Final = "or name a gateway by its address, such as tls+tcp://HOST:PORT"
_log: Final = logging.getLogger("gridfed")


def find_candidates(addresses: Sequence[str], within_s: float) -> Candidates:
    """Return the gateways that named addresses stand for; nothing is asked without `srv://`.

    Args:
        addresses: as the user named them; at least one.
        within_s: the time for all answers of DNS together.

    A service that can't be resolved is logged where there are other addresses.

    Raises:
        AddressError: an address is invalid, or the extra `dns` is not installed.
        GatewayUnreachable: no named address is left: DNS did not answer, or knows no gateway.
    """
    services: list[str] = []
    for address in addresses:
        if is_service(address):
            services.append(service_name(address))
        else:
            check_address(address)
    answers: dict[str, Sequence[ServiceRecord]] = {}
    failed: list[GridError] = []
    until_s = time.monotonic() + within_s
    for name in dict.fromkeys(services):
        try:
            left_s = max(WITHIN_MIN_S, until_s - time.monotonic())
            answers[name] = usable(name, look_up(name, left_s))
        except MissingResolver:
            raise
        except GridError as error:
            failed.append(error)
    if failed and not answers and all(map(is_service, addresses)):
        raise failed[0] if len(failed) == 1 else GatewayUnreachable("; ".join(map(str, failed)))
    for each in failed:
        _log.warning("%s", each)
    return candidates(
        addresses,
        answers,
        random.Random(),  # noqa: S311 - it spreads clients, and hides nothing
    )


class MissingResolver(AddressError):
    """A service name was given, and dnspython is not installed."""


def look_up(name: str, within_s: float) -> list[ServiceRecord]:
    """Ask DNS for the SRV records of a service. Raises MissingResolver and GatewayUnreachable."""
    try:
        import dns.exception
        import dns.rdatatype
        import dns.resolver
    except ImportError:
        raise MissingResolver(
            f"{SERVICE_SCHEME}{name}: a service name needs dnspython, which is not installed: "
            f"pip install 'gridfed[dns]', {_INSTEAD}"
        ) from None
    asked, where = question(name), f"{SERVICE_SCHEME}{name}"
    given = os.environ.get(SERVER_VARIABLE, "").strip()
    try:
        resolver = dns.resolver.Resolver(configure=not given)
        if given:
            host, resolver.port = _server(given)
            resolver.nameservers = [host]
        answer = resolver.resolve(asked, dns.rdatatype.SRV, lifetime=within_s, search=False)
    except dns.resolver.NXDOMAIN:
        why = f"DNS has no name {asked} (NXDOMAIN): check the name, ask its operator, {_INSTEAD}"
    except dns.resolver.NoAnswer:
        why = f"DNS has no SRV record of {asked}: ask its operator for one, {_INSTEAD}"
    except dns.resolver.NoResolverConfiguration:
        why = (
            "this host names no DNS server (/etc/resolv.conf): "
            f"set ${SERVER_VARIABLE} to the address of one, {_INSTEAD}"
        )
    except dns.exception.Timeout:
        server = f"the DNS server {given} (${SERVER_VARIABLE})" if given else "a DNS server"
        why = (
            f"{server} did not answer within {duration_text(within_s)} to the question for "
            f"{asked}: check the network, {_INSTEAD}"
        )
    except (dns.exception.DNSException, OSError) as error:
        why = f"DNS can't answer the question for {asked} ({error!s:.300}): try again, {_INSTEAD}"
    else:
        return [
            ServiceRecord(
                record.priority,
                record.weight,
                record.target.to_text(omit_final_dot=True),
                record.port,
            )
            for record in answer
        ]
    raise GatewayUnreachable(f"{where}: {why}")


def _server(text: str) -> tuple[str, int]:
    """Return the address and port of `IP`, `IP:PORT` or `[IP]:PORT`. Raises AddressError."""
    host, port = text, str(_DNS_PORT)
    if text.startswith("[") or text.count(":") == 1:
        host, _, port = text.rpartition(":")
    try:
        return str(plain_ip(host.removeprefix("[").removesuffix("]"))), int(port)
    except ValueError:
        raise AddressError(
            f"${SERVER_VARIABLE} is {text!a:.100}: it must be the IP address of a DNS server, "
            "with or without a port, such as 10.0.0.53 or 10.0.0.53:5353"
        ) from None
