"""One process of a run that talks to the gateway as one role: `python -m tests.fuzz.attack FILE`.

It goes on until SIGTERM, and prints its tally as a line of JSON each second.
"""

import contextlib
import json
import os
import random
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from federation.errors import SessionRefused
from federation.messages.messages import MESSAGES, Hello
from federation.sessions.handshake import Credentials, SharedSecret
from federation.sessions.nng import NngPort
from federation.transport import TlsSettings
from gateway.trust import introduction
from gateway.trust.identity_store import Registry, pack_words
from gateway.trust.introduction import SiteCredentials
from gateway.trust.keys import hold
from tests.fuzz.members import BuyerRole
from tests.fuzz.pipes import GREETING, Pipe, PipeClosed, connect
from tests.fuzz.roles import ClientRole, Role, WorkerRole
from tests.fuzz.selling import Stall
from tests.fuzz.tally import Tally, reason_of
from tests.fuzz.visits import Visit, sessions
from tests.fuzz.vocabulary import mutated, odd_handshake

TELL_S: Final = 1.0


def as_caller(settings: dict[str, Any], chance: random.Random, tally: Tally) -> Iterator[None]:
    """A client or a worker, by tokens, at any of the addresses."""
    kind = settings["role"]
    roles: dict[str, Role] = {
        user: ClientRole(user) if kind == "client" else WorkerRole() for user in settings["tokens"]
    }

    def open_() -> tuple[Pipe, Hello, Credentials, Role]:
        user = chance.choice(list(roles))
        role = roles[user]
        about = {"token": settings["tokens"][user]}
        if isinstance(role, WorkerRole):
            about |= role.about(chance)
        name = f"fuzz-{int(chance.random() * 4)}"
        hello = Hello([], kind, name, user, b"", "", 0, about)
        pipe = Pipe(chance.choice(settings["addresses"]), _source(chance))
        return pipe, hello, SharedSecret(""), role

    return sessions(tally, chance, open_)


def _source(chance: random.Random) -> str:
    return f"127.0.{int(chance.random() * 4)}.{1 + int(chance.random() * 250)}"


@contextlib.contextmanager
def own_keys(folder: str, address: str = "") -> Iterator[Registry]:
    """Our site's keys, in another life of it; `address` is where it is dialled."""
    path = Path(folder)
    with hold(path):
        registry = Registry(path)
        registry.addresses = (address,) if address else ()
        registry.begin_life()
        registry.write_tls()
        yield registry


def as_buyer(settings: dict[str, Any], chance: random.Random, tally: Tally) -> Iterator[None]:
    """A member that dials the gateway's port for members."""
    with own_keys(settings["folder"]) as registry:
        role = BuyerRole(registry, settings["site"])
        leaf = registry.folder / "leaf.pem"

        def open_() -> tuple[Pipe, Hello, Credentials, Role]:
            address = chance.choice(settings["addresses"])
            pipe = Pipe(address, _source(chance), leaf)
            credentials = SiteCredentials(registry, settings["site"])
            return pipe, introduction.hello(registry), credentials, role

        yield from sessions(tally, chance, open_)


def as_seller(settings: dict[str, Any], chance: random.Random, tally: Tally) -> Iterator[None]:
    """A member that the gateway dials."""
    with own_keys(settings["folder"], settings["listen"]) as registry:
        tls = TlsSettings(str(registry.folder / "leaf.pem"), str(registry.folder / "pins.pem"))
        port = NngPort([settings["listen"]], lambda: None, tls)
        try:
            _tell_card(settings, registry)
            stall = Stall(registry, settings["site"], port, tally)
            while True:
                stall.go_on(chance)
                yield
        finally:
            port.close()


def _tell_card(settings: dict[str, Any], registry: Registry) -> None:
    """Let the gateway know where we are dialled."""
    pipe = Pipe(settings["addresses"][0], certificate=registry.folder / "leaf.pem")
    credentials = SiteCredentials(registry, settings["site"])
    visit = Visit(pipe, introduction.hello(registry), credentials, Tally())
    visit.come_in()
    with contextlib.suppress(PipeClosed):  # it opens its port anew, for what our card says
        visit.tell(MESSAGES.encode(pack_words(registry.words())))
    pipe.close()


def as_stranger(settings: dict[str, Any], chance: random.Random, tally: Tally) -> Iterator[None]:
    """A connection that reaches a port, and does not log in."""
    while True:
        address = chance.choice(settings["addresses"])
        certificate = Path(settings["certificate"]) if chance.random() < 0.7 else None
        tally.sent += 1
        try:
            if chance.random() < 0.4:
                _knock(address, chance)
            else:
                _half_way(Pipe(address, _source(chance), certificate), chance, tally)
            tally.refused["closed"] += 1
        except PipeClosed:
            tally.refused["closed"] += 1
        except SessionRefused as refused:
            tally.refused[reason_of(refused)] += 1
        yield


def _knock(address: str, chance: random.Random) -> None:
    """Bytes that are not nng's, or stop being; below TLS where the port speaks that."""
    made = connect(address.replace("tls+tcp://", "tcp://"), _source(chance))
    with made:
        lead = b"\x01" if address.startswith("ipc://") else b""
        far = chance.choice((0, 1, 4, 2**16 + 1, 2**31, 2**40, 2**63, 2**64 - 1))
        head = GREETING + lead + far.to_bytes(8, "big")
        said = chance.choice(
            (b"", GREETING[:5], GREETING, chance.randbytes(200), head, head + b"\0\0\0\x01x")
        )
        with contextlib.suppress(OSError):
            made.sendall(mutated(said, chance) if chance.random() < 0.3 else said)
            made.settimeout(0.02)
            made.recv(100)


def _half_way(pipe: Pipe, chance: random.Random, tally: Tally) -> None:
    """A handshake with something wrong about it, or a part of one."""
    try:
        about = {"federation": "testing-42", "boot": 1, "token": "gft1.x"}
        for _ in range(1 + int(chance.random() * 3)):
            pipe.send(odd_handshake(chance, about))
            tally.sent += 1
            for frame in pipe.receive(chance.choice((0.0, 0.01, 0.1))):
                if b"refused" in frame:
                    tally.answers["refused"] += 1
    finally:
        pipe.close()


AS: Final[dict[str, Callable[[dict[str, Any], random.Random, Tally], Iterator[None]]]] = {
    "client": as_caller,
    "worker": as_caller,
    "buyer": as_buyer,
    "seller": as_seller,
    "stranger": as_stranger,
}


def main() -> None:
    """Run the attack of the file, until SIGTERM."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    tallies = [Tally() for _ in range(settings.get("threads", 1))]
    broke: list[BaseException] = []

    def talk(tally: Tally, seed: str) -> None:
        try:
            deque(AS[settings["role"]](settings, random.Random(seed), tally), maxlen=0)
        except BaseException as error:
            broke.append(error)

    for number, tally in enumerate(tallies):
        seed = f"{settings['seed']}-{number}"
        threading.Thread(target=talk, args=(tally, seed), daemon=True).start()
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    while not is_over.wait(TELL_S) and not broke:
        print(json.dumps(sum(tallies, Tally()).plain()), flush=True)
    print(json.dumps(sum(tallies, Tally()).plain()), flush=True)
    for error in broke:
        traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(1 if broke else 0)  # the threads are in the middle of what they say


if __name__ == "__main__":
    main()
