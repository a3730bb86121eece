"""The object host as its gateway has it: started, or taken over from a gateway that was lost.

A private file in the state folder says where the host of the last run listens, and by which key it
knows its gateway. It is there only while a host runs: a gateway that stops one removes it.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from federation.messages.objects import AdoptHost, SetUpHost, StopHost
from federation.sessions.credentials import peer_credentials
from gateway.base.child import wait_for_exit
from gateway.base.interpreter import run_module
from gateway.config.limits import ObjectRoom
from gateway.objects.tickets import GATEWAY, KEY_BYTES, ObjectTicket
from gateway.worker.object_pipe import ObjectPipe

STOP_S: Final = 5.0
BACKLOG: Final = 128
FILE: Final = "objects.json"
ORPHAN_S: Final = 60.0  # for a gateway that is gone to be started again


@dataclass(frozen=True, slots=True)
class HostPlace:
    """Where an object host listens, and the key of its tickets."""

    address: str
    key: bytes

    @classmethod
    def make(cls) -> "HostPlace":
        """Return a place for a new host.

        In the abstract namespace of this computer: there is no file that could be left behind.
        """
        return cls(f"@gridfed-objects-{secrets.token_hex(8)}", secrets.token_bytes(KEY_BYTES))

    def save(self, path: Path) -> None:
        """Write it for the next run, for this user alone. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}")
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump({"address": self.address, "key": self.key.hex()}, file)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def read_place(path: Path) -> HostPlace | None:
    """Return the place of the last run's host, if one may still be there."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return HostPlace(str(plain["address"]), bytes.fromhex(plain["key"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def listen_at(place: HostPlace) -> socket.socket:
    """Listen at a place: a host that is started takes the socket over. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind("\0" + place.address.removeprefix("@"))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def dial_lost(place: HostPlace) -> socket.socket | None:
    """Connect to the host of a lost gateway; None: it is not there, or not of this user.

    Raises OSError: it may be there, as one that is too busy; it may be tried again.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)  # a host that is not busy takes it at once
        connection.connect("\0" + place.address.removeprefix("@"))
        if peer_credentials(connection).uid == os.getuid():
            return connection
    except ConnectionRefusedError:
        pass  # nothing listens there
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


class HostProcess:
    """A running object host. `pipe` leads to it; `run` it until the process has ended."""

    def __init__(self, pipe: ObjectPipe, process: "subprocess.Popen[bytes] | int") -> None:
        self.pipe = pipe
        self._process = process  # or a descriptor of one that is no child of ours

    @classmethod
    async def start(
        cls, place: HostPlace, room: ObjectRoom, listener: socket.socket
    ) -> "HostProcess":
        """Start a host for the connections of a listener. Raises OSError."""
        ours, theirs = socket.socketpair()
        command = run_module("gateway.objects.host")
        try:
            process = subprocess.Popen(  # noqa: ASYNC220
                [*command, str(listener.fileno()), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), listener.fileno()),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        host = cls(ObjectPipe(trio.socket.from_stdlib_socket(ours)), process)
        await host.pipe.send(
            SetUpHost(place.key, room.memory, room.user, room.spill_dir, room.spill)
        )
        return host

    @classmethod
    async def adopt(
        cls, connection: socket.socket, old: HostPlace, key: bytes, room: ObjectRoom
    ) -> "HostProcess":
        """Take over the host at the other end; it may refuse, and close. Raises OSError."""
        try:
            descriptor = os.pidfd_open(peer_credentials(connection).pid)
        except BaseException:
            connection.close()
            raise
        host = cls(ObjectPipe(trio.socket.from_stdlib_socket(connection)), descriptor)
        ticket = ObjectTicket(GATEWAY).sign(old.key)
        await host.pipe.send(
            AdoptHost(
                *(ticket, key, room.memory, room.user),
                wants_holders=True,
                spill_dir=room.spill_dir,
                spill_max=room.spill,
            )
        )
        return host

    async def wait(self) -> None:
        """Wait until the process has ended."""
        if isinstance(self._process, int):
            await trio.lowlevel.wait_readable(self._process)
        else:
            await wait_for_exit(self._process)

    async def stop(self) -> None:
        """End the process, politely and then for good. Shielded: it never outlives us."""
        with trio.CancelScope(shield=True):
            with trio.move_on_after(STOP_S):
                await self.pipe.send(StopHost("the gateway stops"))
                await self.wait()
            with contextlib.suppress(ProcessLookupError):
                if isinstance(self._process, int):
                    signal.pidfd_send_signal(self._process, signal.SIGKILL)
                else:
                    self._process.kill()
            await self.wait()
        self.close()

    def close(self) -> None:
        """Release the descriptors, without ending it."""
        self.pipe.close()
        if isinstance(self._process, int):
            os.close(self._process)
