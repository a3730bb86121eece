"""The sites of a run: two honest ones that work for each other, and members that mean no good.

London is fuzzed, at all of its ports. Paris buys from it and sells to it. The others have keys that
London's operator has approved, and no gateway: attack.py speaks for them.
"""

import re
import socket
from pathlib import Path
from typing import Final

from support.answers import answer
from support.members import ACCEPTED, HERE, MemberSite, federate, run
from support.processes import Process, make_certificate, wait_until

from federation.signed.tokens import PREFIX
from gateway.config.environments import RISK

BUYERS: Final = ("berlin", "oslo")
SELLERS: Final = ("madrid",)
USERS: Final = ("eve", "mallory", "trudy")
HONEST: Final = {"honest": True}  # the tag of the pools in which honest work runs
_TAGS: Final = "tags = { honest = true }\n"
LONDON_POOLS: Final = (
    f'[[pool]]\nname = "local"\nkind = "local"\nslots = 1\nprice = "4 USD"\n{ACCEPTED}'
    '[[pool]]\nname = "workers"\nkind = "remote"\nprice = "4 USD"\n'
    f'[[pool]]\nname = "honest"\nkind = "remote"\nprice = "4 USD"\n{_TAGS}'
    '[reservations]\nslots = "50%"\n'
)
PARIS_POOLS: Final = (
    f'[[pool]]\nname = "local"\nkind = "local"\nslots = 1\nprice = "0.04 USD"\n{_TAGS}{ACCEPTED}'
)


class FuzzSite(MemberSite):
    """A site whose gateway is a process that shares nothing with this one."""

    def __init__(self, folder: Path, name: str, pools: str = "") -> None:
        # A command that runs another: so it is not a copy of this process.
        super().__init__(folder, name, 1, "1 USD", start=False, inside=["env"], pools=pools)

    @property
    def state(self) -> Path:
        """The folder of its database."""
        return self.folder / "state"

    def token(self, user: str, scopes: str) -> str:
        """A token of its own."""
        named = ("--user", user, "--scopes", scopes, "--expires", "24h")
        said = run("token", *named, *self.where).split()  # a word of warning may stand before it
        return next(each for each in said if each.startswith(PREFIX))


class FuzzTown:
    """All of them, from the first file to the last process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.london = FuzzSite(folder, "london", LONDON_POOLS)
        self.paris = FuzzSite(folder, "paris", PARIS_POOLS)
        self._open_ports()
        self.members = {name: FuzzSite(folder, name) for name in (*BUYERS, *SELLERS)}
        self.worker: Process | None = None

    def _open_ports(self) -> None:
        """Let London's clients and workers come in by socket, tcp and TLS, by tokens beyond it."""
        both, _ = make_certificate(self.london.folder)
        text = self.london.config.read_text()
        listen = r'(?m)^listen = \["(ipc://[^"]+)"\]'
        ports = r'listen = ["\1", "tcp://127.0.0.1:0", "tls+tcp://127.0.0.1:0"]'
        text, count = re.subn(listen, ports, text, count=1)
        assert count
        tls = f'token_required = true\ntls_certificate_file = "{both}"'
        self.london.config.write_text(text.replace("# token_required = false", tls, 1))

    def start(self) -> None:
        """Start both gateways and the honest worker; have all trust each other."""
        for site in (self.london, self.paris):
            site.start()
        federate(self.london, self.paris)
        for member in self.members.values():
            run("join", run("invite", *self.london.where).splitlines()[0], *member.where)
            for here, there in ((self.london, member), (member, self.london)):
                run("approve", there.name, there.fingerprint, *here.where)
                every = ("--may-send", "all", "--may-run", "all", "--pickles")
                run("trust", there.name, *every, *here.where)
        rules = self.london.folder / "worker.toml"
        rules.write_text(f'sandbox = "none"\naccept_risk = "{RISK}"\n')
        self.worker = Process(
            [
                *("worker", "--gateway", self.london.address, "--slots", "2"),
                *("--pool", "honest", "--name", "honest", "--environments", str(rules)),
            ],
            self.london.folder,
            "worker",
            ["env"],
        )
        with self.london.client() as client:
            view = client.options(tags=HONEST, sites=["london"], priority=1e6)
            assert view.submit(pow, 2, 3).result(300) == 8
        wait_until(lambda: self._sees_pools(self.paris, "london"), "Paris sees London's pools")

    def _sees_pools(self, here: FuzzSite, there: str) -> bool:
        rows = here.ask("pools")
        return any(row["site"] == there and row["slots_total"] > 1 for row in rows)

    def settings(self, role: str) -> dict[str, object]:
        """Settings of a process of attack.py, without its seed: a client, worker or stranger."""
        ports = list(self.london.ready["addresses"])
        if role != "stranger":
            scopes = "work" if role == "worker" else "submit,cancel,report,audit"
            tokens = {user: self.london.token(user, scopes) for user in USERS}
            return {"role": role, "addresses": ports, "tokens": tokens}
        joining = answer(run("invite", "--json", *self.london.where))["address"]
        every = [*ports, *self._gates(), joining]
        leaf = self.members[BUYERS[0]].folder / "federation" / "leaf.pem"
        return {"role": role, "addresses": every, "certificate": str(leaf)}

    def member_settings(self, name: str) -> dict[str, object]:
        """The same, of a member."""
        folder = str(self.members[name].folder / "federation")
        settings = {"site": "london", "folder": folder, "addresses": self._gates()}
        if name in BUYERS:
            return {**settings, "role": "buyer"}
        with socket.create_server((HERE, 0)) as taken:
            listen = f"tls+tcp://{HERE}:{taken.getsockname()[1]}"
        return {**settings, "role": "seller", "listen": listen}

    def _gates(self) -> list[str]:
        """Where London's gateway lets members in."""
        return re.findall(r"other gateways connect at (\S+)", self.london.gateway.text())

    def stop(self) -> dict[str, int]:
        """End everything as operators do, the worker first; the gateways' exit codes."""
        if self.worker is not None:
            self.worker.stop()
        started = [each for each in (self.london, self.paris) if each.starts]
        return {each.name: each.gateway.stop() for each in started}
