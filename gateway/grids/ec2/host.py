"""The program of an instance at its start: it learns its name, and becomes a worker.

Its type decides its number of slots. Its name comes by a tag, which it gets only after it has
started (gateway.grids.ec2.launching): so it polls its metadata for the tag. An instance without a
name ends.

With `--user` the worker is a process of that user, which can't reach the metadata service: user
data has blocked it, because the service reveals secrets. Then this process stays, and relays
notices in a folder.
"""

import argparse
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Final

from gateway.grids.ec2.launching import (
    METADATA,
    NAME,
    ORDER_TAG,
    PILOTS_TAG,
    SLOTS,
    number_in,
    pilot_name,
)
from gateway.worker.interruption import ACTION, POLL_S, REBALANCE
from gateway.worker.metadata import Metadata, MetadataError, Relayed, endpoint

NAME_S: Final = 600.0  # how long it waits for its name
ANSWER_S: Final = 120.0  # and for its network, and for an answer
ASK_S: Final = 1.0


def slots_of(table: str, kind: str) -> int:
    """Return the slots of an instance type, of "c7i.large=2,c7i.xlarge=4"."""
    found = dict(each.split("=", 1) for each in table.split(","))
    if kind not in found:
        raise MetadataError(
            f"this instance is a {kind}, which is not among the types of the pool: {table}"
        )
    return int(found[kind])


def identify(need: Callable[[str], str], until_s: float, ask_s: float = ASK_S) -> tuple[str, str]:
    """Poll until the instance's id and type are known: a new host's network comes up late.

    Raises MetadataError when one is not known by then.
    """
    found: list[str] = []
    while len(found) < 2:
        try:
            found.append(need(("instance-id", "instance-type")[len(found)]))
        except MetadataError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(ask_s)
    return found[0], found[1]


def wait_for_name(
    ask: Callable[[str], str | None], instance: str, until_s: float, ask_s: float = ASK_S
) -> str:
    """Poll the tags for the name of this pilot. Raises MetadataError."""
    why = "the tag with the number of the instance is missing"
    while time.monotonic() < until_s:
        try:
            order = ask(f"tags/instance/{ORDER_TAG}")
            tag = ask(f"tags/instance/{PILOTS_TAG}")
            number = number_in(tag, instance) if tag else None
            if order and number is not None:
                return pilot_name(order, number)
        except MetadataError as error:
            why = str(error)
        time.sleep(ask_s)
    raise MetadataError(f"this instance has no name: {why}")


def fill_in(command: Sequence[str], found: dict[str, str]) -> list[str]:
    """Fill known values into a pilot's command."""
    return [found.get(word, word) for word in command]


def main() -> None:
    """Become the worker of the command."""
    parser = argparse.ArgumentParser(prog="gateway.grids.ec2.host")
    parser.add_argument("--slots", required=True)
    parser.add_argument("--user", default="")
    parser.add_argument("--relay-s", type=float, default=POLL_S)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    address = endpoint()
    metadata = Metadata(address)
    try:
        instance, kind = identify(metadata.need, time.monotonic() + ANSWER_S)
        slots = slots_of(given.slots, kind)
        name = wait_for_name(metadata.get, instance, time.monotonic() + NAME_S)
    except MetadataError as error:
        sys.exit(f"gridfed: this instance can't run a worker: {error}")
    found = {NAME: name, SLOTS: str(slots), METADATA: address}
    if given.user:
        sys.exit(_work_as(given.user, given.command, found, metadata, given.relay_s))
    command = fill_in(given.command, found)
    os.execvp(command[0], command)  # noqa: S606 - it has no shell, and becomes that program


def _work_as(
    user: str, command: Sequence[str], found: dict[str, str], metadata: Metadata, relay_s: float
) -> int:
    """Run the worker as a user, and relay notices to it; return its exit code."""
    who = pwd.getpwnam(user)
    identity = {"HOME": who.pw_dir, "USER": user, "LOGNAME": user}
    with tempfile.TemporaryDirectory(prefix="gridfed-notices-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - notices are for all users of this host
        worker = subprocess.Popen(
            fill_in(command, {**found, METADATA: folder}),
            user=who.pw_uid,
            group=who.pw_gid,
            extra_groups=os.getgrouplist(user, who.pw_gid),
            cwd=who.pw_dir,
            env={**os.environ, **identity},
        )
        signal.signal(signal.SIGTERM, lambda *_: worker.terminate())
        notices = Relayed(folder)
        while True:
            try:
                return worker.wait(relay_s)
            except subprocess.TimeoutExpired:
                _relay(metadata, notices)


def _relay(metadata: Metadata, notices: Relayed) -> None:
    for path in (ACTION, REBALANCE):
        try:
            text = metadata.get(path)
        except MetadataError:
            continue  # it is asked again at once
        if text is not None:
            notices.put(path, text)


if __name__ == "__main__":
    main()
