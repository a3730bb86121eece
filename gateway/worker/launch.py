"""How a slot's process is started, and what shuts it in: said in advance, done by SlotProcess."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.interpreter import run_module
from gateway.worker.cgroups import Group

SLOT: Final = "gateway.worker.slot"
FILTER_PLACE: Final = "@filter"  # in a command: stands for the descriptor of its `filter`
# Moves itself into its cgroups, and becomes what follows "--": between the two nothing can escape.
_ENTER: Final = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 96; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one slot's process.

    Attributes:
        command: what runs the slot; its numbers come behind it. Of a container all of it.
        environment: its variables.
        memory_bytes: of the slot; 0 for no limit.
        is_child: whether it sees us as its parent; not from within a process namespace.
        cores: the only ones that it may use; None: those that we may.
        group: the control group that it joins; a container has its own.
        socket: where it fetches its descriptors, being no child of ours; empty: they are inherited.
        remove: the command that ends it, should its socket never have been used.
        python: the minor version that it must be; empty: it is.
        filter: of system calls, for bubblewrap's --seccomp; empty for none.
        folder: where it runs; empty: where we do.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    memory_bytes: int = 0
    is_child: bool = True
    cores: frozenset[int] | None = None
    group: Group | None = None
    socket: str = ""
    remove: tuple[str, ...] = ()
    python: str = ""
    filter: bytes = b""
    folder: str = ""

    def open_filter(self) -> int | None:
        """A new descriptor that the filter is read from, to its end; None without one."""
        if not self.filter:
            return None
        descriptor = os.memfd_create("gridfed-filter", os.MFD_CLOEXEC)
        os.write(descriptor, self.filter)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def words(self, filter_fd: int | None) -> list[str]:
        """The command, with the descriptor of its filter in its place."""
        return [str(filter_fd) if each == FILTER_PLACE else each for each in self.command]

    def argv(self, descriptors: tuple[int, int], filter_fd: int | None = None) -> list[str]:
        """The command line, for a slot that inherits these."""
        command = self.words(filter_fd)
        if not self.socket:
            parent = os.getpid() if self.is_child else 0
            command += map(str, (*descriptors, parent, self.memory_bytes))
        if self.group is None and command[0] == sys.executable:
            return command
        # Also what may not be there any more: then it ends with 127, as if it had been.
        entrances = () if self.group is None else self.group.entrances
        return ["/bin/sh", "-c", _ENTER, "sh", *map(str, entrances), "--", *command]


def bare(
    environment: Mapping[str, str], memory_bytes: int, shell: tuple[str, ...] = (), folder: str = ""
) -> Launch:
    """A slot like any other process, in this Python; behind a command that makes it another's."""
    return Launch((*shell, *run_module(SLOT)), environment, memory_bytes, folder=folder)
