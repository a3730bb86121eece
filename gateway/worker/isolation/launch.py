"""Describes how a slot's process is started and confined; SlotProcess carries it out."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.base.interpreter import run_module
from gateway.worker.isolation.cgroups import SlotCgroup

SLOT: Final = "gateway.worker.slot.slot"
FILTER_PLACE: Final = "@filter"  # in a command: stands for the descriptor of its `filter`
# Moves itself into its cgroups, and then executes the words after "--": nothing can escape in
# between.
_ENTER: Final = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 96; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class SlotLaunch:
    """How to start one slot's process.

    Attributes:
        command: runs the slot; its numbers are appended. For a container the whole command.
        environment: its variables.
        memory_bytes: the limit of the slot; 0 for none.
        is_child: whether it sees us as its parent; not from within a process namespace.
        cores: the only ones that it may use; None: those that we may use.
        group: the control group that it joins; a container has its own.
        socket: where it fetches its descriptors if it is no child of ours; empty: it inherits them.
        remove: the command that ends it if its socket was never used.
        python: the required minor version; empty: no check.
        filter: a filter of system calls for bubblewrap's --seccomp; empty for none.
        folder: its working directory; empty: ours.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    memory_bytes: int = 0
    is_child: bool = True
    cores: frozenset[int] | None = None
    group: SlotCgroup | None = None
    socket: str = ""
    remove: tuple[str, ...] = ()
    python: str = ""
    filter: bytes = b""
    folder: str = ""

    def open_filter(self) -> int | None:
        """Return a new descriptor with the filter, positioned at its start; None without one."""
        if not self.filter:
            return None
        descriptor = os.memfd_create("gridfed-filter", os.MFD_CLOEXEC)
        os.write(descriptor, self.filter)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def words(self, filter_fd: int | None) -> list[str]:
        """Return the command, with the descriptor of its filter filled in."""
        return [str(filter_fd) if each == FILTER_PLACE else each for each in self.command]

    def argv(self, descriptors: tuple[int, int], filter_fd: int | None = None) -> list[str]:
        """Return the command line for a slot that inherits these descriptors."""
        command = self.words(filter_fd)
        if not self.socket:
            parent = os.getpid() if self.is_child else 0
            command += map(str, (*descriptors, parent, self.memory_bytes))
        if self.group is None and command[0] == sys.executable:
            return command
        # Also for a program that may be gone: the slot then ends with 127 instead of failing to
        # start.
        entrances = () if self.group is None else self.group.entrances
        return ["/bin/sh", "-c", _ENTER, "sh", *map(str, entrances), "--", *command]


def bare(
    environment: Mapping[str, str], memory_bytes: int, shell: tuple[str, ...] = (), folder: str = ""
) -> SlotLaunch:
    """Return the launch of a plain process in this Python; `shell` makes it run as another user."""
    command = run_module(SLOT, is_ours=not shell)
    return SlotLaunch((*shell, *command), environment, memory_bytes, folder=folder)
