"""Federations of real gateway processes for tests, made by the command line as operators do."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from support.answers import answer
from support.processes import FailingClient, Process, wait_until

from federation import Client
from gateway.cli.main import cli
from gateway.config.environments import RISK

# Leases as short as they may be: the tests wait for some of them to end.
TIMES = {"heartbeat_s": 0.3, "grace_s": 2.0}
LEASE_S = 5.0
HERE = "127.0.0.1"
# Slots as quick as can be: all sites of a test are the test's own.
ACCEPTED = f'user = "none"\nenvironments = {{ sandbox = "none", accept_risk = "{RISK}" }}\n'
DISTRUST = {"site-not-trusted", "results-not-trusted"}


def run(*arguments: str, code: int = 0) -> str:
    """A command in this very process: quicker than another."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == code, result.output
    return result.output


class MemberSite:
    """A site with local slots, its gateway a process of its own, here or on another host.

    Args:
        host: its address; on another host than this the ports are the usual ones.
        inside: the command that runs another on that host.
        start: whether its gateway runs at once.
        pools: its pools in TOML, in place of the local one.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        slots: int,
        price: str,
        extra: str = "",
        host: str = HERE,
        inside: Sequence[str] = (),
        *,
        start: bool = True,
        pools: str = "",
    ) -> None:
        self.name, self.folder, self._inside = name, folder / name, inside
        self.where = ["--config-dir", str(self.folder)]
        made = run(
            *("init", "--site", name, "--federation", "testing-42", "--host", host),
            *(("--port", "0") if host == HERE else ()),
            *(*self.where, "--json"),
        )
        self.fingerprint = answer(made)["fingerprint"]
        self.config = self.folder / "gateway.toml"
        text = self.config.read_text()
        times = "\n".join(f"{key} = {value}" for key, value in TIMES.items())
        text = text.replace("[limits]\n", f"[limits]\n{times}\n")
        # Where a quote comes too late to go elsewhere is right; and this host may be busy.
        contracts = f"[contracts]\nlease_s = {LEASE_S}\nquote_wait_s = 20\n"
        text = text.replace("[contracts]\n", contracts)
        pool = f'name = "local"\nkind = "local"\nslots = {slots}\nprice = "{price}"\n'
        if "pool.environments" not in extra:
            pool += ACCEPTED
        self.config.write_text(f"{text}\n{pools or f'[[pool]]{chr(10)}{pool}{extra}'}")
        self.starts = 0
        if start:
            self.start()

    def start(self) -> None:
        self.starts += 1
        name = f"gateway{self.starts}"
        self.gateway = Process(
            ["gateway", "--config", str(self.config), "--json"], self.folder, name, self._inside
        )
        self.ready = self.gateway.wait_ready()

    def keep_port(self) -> None:
        """Listen for other gateways at the same port in its next lives, as sites do."""
        found = re.search(r"other gateways connect at (\S+)", self.gateway.text())
        assert found is not None
        text = self.config.read_text()
        changed = text.replace(f'\nlisten = "tls+tcp://{HERE}:0"', f'\nlisten = "{found[1]}"')
        assert changed != text
        self.config.write_text(changed)

    @property
    def address(self) -> str:
        found: list[str] = self.ready["addresses"]
        return found[0]

    def client(self, **kwargs: Any) -> Client:
        return FailingClient(self.address, **kwargs)

    def ask(self, verb: str, **details: Any) -> Any:
        with self.client() as client:
            return client.ask(verb, **details)

    def deals(self, side: str) -> dict[str, int]:
        """The purchases or sales, by state: tasks."""
        return {row["state"]: row["tasks"] for row in self.ask("deals") if row["side"] == side}


def settled(buyer: MemberSite, seller: MemberSite) -> bool:
    """Whether the books of both have something, agree on it, and have nothing pending."""
    bought, sold = buyer.deals("buy"), seller.deals("sell")
    is_pending = "pending" in bought or "pending" in sold
    return not is_pending and 0 < bought.get("settled", 0) == sold.get("settled")


def federate(*members: MemberSite, hidden: int = 0) -> None:
    """All sites know and trust each other, and see pools of all but so many that hide theirs."""
    first, *others = members
    for other in others:
        invitation = run("invite", *first.where).splitlines()[0]
        run("join", invitation, *other.where)
    for here in members:
        for there in members:
            if here is there:
                continue
            known = answer(run("known", *here.where, "--json"))["rows"]
            wait_until(
                lambda here=here, there=there: any(
                    each["site"] == there.name
                    for each in answer(run("known", *here.where, "--json"))["rows"]
                ),
                f"{here.name} hears of {there.name}: {known}",
            )
            run("approve", there.name, there.fingerprint, *here.where)
            run(
                "trust",
                there.name,
                "--may-send",
                "all",
                "--may-run",
                "all",
                "--pickles",
                *here.where,
            )
    for here in members:
        wait_until(
            lambda here=here: (
                len({row["site"] for row in here.ask("pools") if row["slots_total"]})
                >= len(members) - hidden
            ),
            f"{here.name} sees a pool of every site",
        )
        wait_until(lambda here=here: not distrusts(here), f"{here.name} knows whom it trusts")


def relay_through(relay: MemberSite, buyer: MemberSite, seller: MemberSite) -> None:
    """The buyer sends the seller no work itself, but lets another pass it on, as the seller does.

    The gateways of both are started anew: their adverts of the old rules no longer count.
    """
    run("trust", seller.name, "--may-run", "none", *buyer.where)
    run("trust", relay.name, "--may-run", f"sites=@self,{seller.name}", *buyer.where)
    run("trust", relay.name, "--may-send", f"sites=@self,{buyer.name}", *seller.where)
    for member in (buyer, seller):
        member.gateway.stop()
        member.start()


def distrusts(member: MemberSite) -> bool:
    """Whether a gateway has not read yet that it was told to trust all that it sees."""
    refused = member.ask("explain", tasks=1)["refused"]
    return any(group["reason"] in DISTRUST for group in refused)


@contextmanager
def federated(*members: MemberSite) -> Iterator[tuple[MemberSite, ...]]:
    """Sites that are up, as one federation; they stop in the end."""
    try:
        federate(*members)
        yield members
    finally:
        for member in members:
            member.gateway.stop()


@contextmanager
def dear_and_cheap(folder: Path, extra: str = "") -> Iterator[tuple[MemberSite, MemberSite]]:
    """London, dear and small, and Paris, cheap and larger: a federation, up.

    `extra` is more of Paris' pool.
    """
    members = (
        MemberSite(folder, "london", 1, "4 USD"),
        MemberSite(folder, "paris", 2, "0.04 USD", extra),
    )
    with federated(*members):
        yield members
