"""The first process of a container that is a slot: forks the slot, and ends with it or its agent.

Runs as `python3 -m gateway.worker.slot.container_init SOCKET MEMORY`. It fetches its descriptors,
forks the slot, and ends the container when the slot or its agent has ended. Any Python 3 can parse
it: an image may have an old one, which must report its version. A task can't reach this process: as
the container's first process it takes no signal from within, and its memory is its own.
"""

import array
import os
import select
import signal
import socket
import sys

OUT_OF_MEMORY = 95  # the exit code of a slot that was killed for its memory
# Where the container sees its own control group: version 1, and 2.
OOM_FILES = ("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events")


def fetch(path: str) -> "list[int]":
    """Return our descriptors: channel, cells, lifeline. Sends the version of this Python."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    connection.sendall(".".join(map(str, sys.version_info[:2])).encode("ascii"))
    numbers = array.array("i")
    room = socket.CMSG_SPACE(3 * numbers.itemsize)
    _, ancillary, _, _ = connection.recvmsg(1, room)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    connection.close()
    if len(numbers) != 3:
        sys.exit("gridfed: the worker agent has ended")
    return list(numbers)


def oom_kills() -> int:
    """Return how often the kernel has killed a process of this container for its memory."""
    for path in OOM_FILES:
        try:
            with open(path) as file:
                for line in file:
                    words = line.split()
                    if words[0] == "oom_kill":
                        return int(words[1])
        except (OSError, IndexError, ValueError):
            continue
    return 0


def watch(slot: int, lifeline: int, ended: int) -> int:
    """Wait for the end of the slot or the agent; return the exit code of the container.

    `ended` is readable when a child has ended.
    """
    while True:
        ready, _, _ = select.select([lifeline, ended], [], [])
        if lifeline in ready:
            return 1  # the agent is gone: the kernel kills all processes of this container
        os.read(ended, 512)
        while True:
            # also reaps processes that tasks have left behind
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == slot:
                if not os.WIFSIGNALED(status):
                    return os.WEXITSTATUS(status)
                number = os.WTERMSIG(status)
                return OUT_OF_MEMORY if number == 9 and oom_kills() else 128 + number
            if pid == 0:
                break


def main() -> None:
    """Run as the container's first process."""
    channel, cells, lifeline = fetch(sys.argv[1])
    ended, woken = os.pipe()
    os.set_blocking(woken, False)
    slot = os.fork()
    if slot == 0:
        for each in (lifeline, ended, woken):
            os.close(each)
        from gateway.worker.slot.slot import serve

        serve(channel, cells, int(sys.argv[2]))
    os.close(channel)
    os.close(cells)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.kill(os.getpid(), signal.SIGCHLD)  # it may have ended before the handler was set
    os._exit(watch(slot, lifeline, ended))


if __name__ == "__main__":
    main()
