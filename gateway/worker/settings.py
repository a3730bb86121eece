"""The settings of an agent, and its Hello."""

import argparse
import os
import socket
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from federation.address import SECRET_VARIABLE, TOKEN_VARIABLE, login
from federation.files import read_regular
from federation.messages.messages import Hello
from federation.sessions.handshake import SharedSecret
from federation.sessions.task_passes import (
    ABOUT,
    HANDS_ON,
    KEY_BYTES,
    TaskPass,
    read_pass,
    seal,
    subject_of,
)
from federation.transport import TlsSettings
from gateway.base.tags import OBJECTS_TAG
from gateway.base.values import SettingError
from gateway.config.environments import (
    FREE,
    Confines,
    EnvironmentRules,
    read_rules,
    rules_from_json,
)
from gateway.worker.interruption import POLL_S
from gateway.worker.isolation.secrecy import take_variable

TICKET_VARIABLE: Final = "GRIDFED_OBJECTS_TICKET"
RULES_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of an agent.

    `address` is the gateway's, or several of one site, separated by commas; `memory_bytes` is the
    limit of each slot, 0 for none; `give_up_s` is how long to look for the
    gateway, 0 for ever; `die_with_parent` is the process that the agent ends with, 0 for none.
    `interruptions` is the metadata service that announces the end of the host, polled every
    `interruptions_s`; with `heeds_rebalance` also a possible end (gateway.worker.interruption).
    `rules` say which environments slots may have; `gpus` are those it gives out, in the format of
    CUDA_VISIBLE_DEVICES; without any that variable is not touched. `tasks_dial` is the address at
    which tasks dial the gateway, if it is not the agent's. `objects` is the address of the object
    host, empty for none, and `objects_ticket` the ticket for it, in hexadecimal digits.
    """

    address: str
    name: str
    pool: str
    slots: int
    secret: str = ""
    token: str = ""
    tls: TlsSettings = field(default_factory=TlsSettings)
    tags: dict[str, bool | int | float] = field(default_factory=dict)
    memory_bytes: int = 0
    give_up_s: float = 0.0
    die_with_parent: int = 0
    interruptions: str = ""
    interruptions_s: float = POLL_S
    heeds_rebalance: bool = False
    rules: EnvironmentRules | None = None
    confines: Confines = FREE
    gpus: tuple[str, ...] = ()
    tasks_dial: str = ""
    objects: str = ""
    objects_ticket: str = field(default="", repr=False)

    def label(self, job: str) -> str:
        """Return the worker, its host and its pool, for people; for other sites' jobs the pool."""
        if ":" in job:  # it is of another site, which is shown no names of hosts
            return f"a worker of pool {self.pool}"
        return f"worker {self.name} (host {_host_name()}, pool {self.pool})"

    @property
    def credentials(self) -> SharedSecret:
        """The credentials that the agent shows to the gateway."""
        own = read_pass(self.token)
        return SharedSecret(self.secret) if own is None else own.credentials

    def pass_of(self, job: str, pass_key: bytes) -> str:
        """Return the pass of a job for its tasks, by the key that came with them; empty: none."""
        if len(pass_key) != KEY_BYTES:
            return ""
        subject = subject_of(job)
        return str(TaskPass(subject, seal(pass_key, self.token or self.secret, subject)))

    def hello(self, offered: Mapping[str, bool]) -> Hello:
        """Return the agent's Hello; `offered` are the tags of the environments of slots."""
        about: dict[str, Any] = {
            "slots": self.slots,
            "tags": {**self.tags, **offered, **({OBJECTS_TAG: True} if self.objects else {})},
            "pool": self.pool,
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "memory_bytes": self.memory_bytes,
            "host_memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "begun": True,
            "output": True,
            "inputs": True,
            "chains": True,
        }
        about[HANDS_ON] = True
        own = read_pass(self.token)
        if own is not None:
            about[ABOUT] = own.subject
        elif self.token:
            about["token"] = self.token
        return Hello([], "worker", self.name, login(), b"", "", 0, about)


def read_arguments() -> AgentSettings:
    """Read the settings of an agent started by a grid; secrets come from its environment."""
    parser = argparse.ArgumentParser(prog="gateway.worker.agent")
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--tags", default="")
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--give-up-s", type=float, default=0.0)
    parser.add_argument("--die-with-parent", type=int, default=0, metavar="PID")
    parser.add_argument("--interruptions", default="")
    parser.add_argument("--interruptions-s", type=float, default=POLL_S)
    parser.add_argument("--heed-rebalance", action="store_true")
    parser.add_argument("--environments", default="")
    parser.add_argument("--gpus", default="")
    parser.add_argument("--cpus", type=float, default=0.0)
    parser.add_argument("--pids-max", type=int, default=0)
    parser.add_argument("--cgroups", default="auto")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--slot-user", default="none")
    parser.add_argument("--tasks-dial", default="")
    parser.add_argument("--objects", default="")
    given = parser.parse_args()
    return AgentSettings(
        address=given.gateway,
        name=given.name,
        pool=given.pool,
        slots=given.slots,
        secret=take_variable(SECRET_VARIABLE),
        token=take_variable(TOKEN_VARIABLE),
        tls=TlsSettings().or_environment(),
        tags=parse_tags(given.tags),
        memory_bytes=given.memory,
        give_up_s=given.give_up_s,
        die_with_parent=given.die_with_parent,
        interruptions=given.interruptions,
        interruptions_s=given.interruptions_s,
        heeds_rebalance=given.heed_rebalance,
        rules=rules_from_json(given.environments) if given.environments else None,
        confines=Confines(given.cpus, given.pids_max, given.cgroups, given.pin, given.slot_user),
        gpus=_gpus(given.gpus),
        tasks_dial=given.tasks_dial,
        objects=given.objects,
        objects_ticket=take_variable(TICKET_VARIABLE),
    )


def read_rules_file(path: str) -> EnvironmentRules:
    """Read the rules of a file for `gridfed worker`: keys of [pool.environments]. SettingError."""
    try:
        table = tomllib.loads(read_regular(Path(path), RULES_BYTES_MAX).decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingError(f"{path}: {error}") from None
    try:
        return read_rules(table)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None


def parse_tags(text: str) -> dict[str, bool | int | float]:
    """Parse tags in the format of policies.placement.placement.show_tag: `linux,gpu=2`."""
    tags: dict[str, bool | int | float] = {}
    for part in filter(None, text.split(",")):
        name, equals, number = part.partition("=")
        value = float(number) if equals else True
        tags[name] = int(value) if value == int(value) and equals else value
    return tags


def _gpus(text: str) -> tuple[str, ...]:
    """Return the GPUs to give out; `inherited`: those that this process was given."""
    if text == "inherited":
        text = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return tuple(filter(None, text.split(",")))


@cache
def _host_name() -> str:
    """Return the name of this host; asked for once, as each assignment carries it."""
    return socket.gethostname()
