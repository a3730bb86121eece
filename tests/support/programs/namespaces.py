"""Hosts of a test that are network namespaces of this machine, and firewall rules between them."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

PREFIX = "gridfed"
TOOLS = {"ip": "iproute2", "nft": "nftables"}  # and the Debian packages that have them


class Refused(Exception):
    """This machine refuses; the text says why."""


def _do(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"`{' '.join(command)}`: {done.stderr.strip()}")
    return done.stdout


class Network:
    """Hosts on one bridge; the traffic of each direction can be cut off by itself.

    The names of the namespaces carry our process id: those of a killed process are not in the way
    of the next.

    Raises:
        Refused: namespaces or firewall rules can't be had here.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        if os.geteuid() != 0:
            raise Refused("only root makes network namespaces")
        for tool, package in TOOLS.items():
            if shutil.which(tool) is None:
                raise Refused(f"there is no `{tool}` here (Debian package {package})")
        _sweep()
        self.addresses = {host: f"10.77.0.{number}" for number, host in enumerate(hosts, 1)}
        self._made: list[str] = []
        try:
            self._build()
        except Refused:
            self.close()
            raise

    def _build(self) -> None:
        bridge = self._make("bridge")
        _do("ip", "-n", bridge, "link", "add", "middle", "type", "bridge")
        _do("ip", "-n", bridge, "link", "set", "middle", "up")
        for host, address in self.addresses.items():
            name = self._make(host)
            veth = ("link", "add", host, "netns", bridge, "type", "veth")
            _do("ip", *veth, "peer", "name", "eth0", "netns", name)
            _do("ip", "-n", bridge, "link", "set", host, "master", "middle", "up")
            _do("ip", "-n", name, "link", "set", "lo", "up")
            _do("ip", "-n", name, "link", "set", "eth0", "up")
            _do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            self._nft(host, "add table inet wall")
            self._nft(host, "add chain inet wall input { type filter hook input priority 0; }")

    def _make(self, host: str) -> str:
        name = _name(host)
        _do("ip", "netns", "add", name)
        self._made.append(name)
        return name

    def inside(self, host: str) -> list[str]:
        """The command that runs another on a host, as the same process."""
        return ["ip", "netns", "exec", _name(host)]

    def _nft(self, host: str, rule: str) -> str:
        return _do(*self.inside(host), "nft", rule)

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing that the one sends comes in at the other any more, as if it were lost."""
        rule = f"ip saddr {self.addresses[sender]} counter drop"
        self._nft(receiver, f"add rule inet wall input {rule}")

    def has_dropped(self, receiver: str) -> bool:
        """Whether the cuts of a host's incoming traffic have dropped anything."""
        return "counter packets 0 " not in self._nft(receiver, "list chain inet wall input")

    def heal(self) -> None:
        """Everything arrives again."""
        for host in self.addresses:
            self._nft(host, "flush chain inet wall input")

    def close(self) -> None:
        """Take it all down; Refused, after that, when something would not go."""
        failures = []
        while self._made:
            try:
                _do("ip", "netns", "del", self._made.pop())
            except Refused as error:
                failures.append(str(error))
        if failures:
            raise Refused("; ".join(failures))


def _name(host: str) -> str:
    return f"{PREFIX}-{os.getpid()}-{host}"


def _sweep() -> None:
    for line in _do("ip", "netns", "list").splitlines():
        name = line.split()[0]
        prefix, _, rest = name.partition("-")
        process = rest.partition("-")[0]
        if prefix == PREFIX and process.isdigit() and not Path("/proc", process).exists():
            _do("ip", "netns", "del", name)
