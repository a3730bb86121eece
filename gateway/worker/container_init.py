"""The first process of a container that is a slot: it fetches its descriptors, forks the slot,
and ends the container when the slot or its agent has ended.

As `python3 -m gateway.worker.container_init SOCKET MEMORY`. Written so that any Python 3 can read
it: an image's may be an old one, which has to say so. What a task does can't reach this process:
it is the container's first, which takes no signal from within, and its memory is its own.
"""

import array
import os
import select
import signal
import socket
import sys

OUT_OF_MEMORY = 95  # the exit code of a slot that was ended for its memory
# Where the container sees its own control group: version 1, and 2.
OOM_FILES = ("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events")


def fetch(path: str) -> "list[int]":
    """Our descriptors: channel, cells, lifeline. Says which Python this is."""
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
        sys.exit("gridfed: the agent is gone")
    return list(numbers)


def oom_kills() -> int:
    """How often the kernel has ended a process of this container for its memory."""
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
    """Wait for the end of the slot, or of the agent; the exit code of the container.

    `ended` can be read whenever a child has ended.
    """
    while True:
        ready, _, _ = select.select([lifeline, ended], [], [])
        if lifeline in ready:
            return 1  # nobody is at the other end: the kernel ends all that is here with us
        os.read(ended, 512)
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)  # what tasks have left behind, too
            if pid == slot:
                if not os.WIFSIGNALED(status):
                    return os.WEXITSTATUS(status)
                number = os.WTERMSIG(status)
                return OUT_OF_MEMORY if number == 9 and oom_kills() else 128 + number
            if pid == 0:
                break


def main() -> None:
    """Be the container's first process."""
    channel, cells, lifeline = fetch(sys.argv[1])
    ended, woken = os.pipe()
    os.set_blocking(woken, False)
    slot = os.fork()
    if slot == 0:
        for each in (lifeline, ended, woken):
            os.close(each)
        from gateway.worker.slot import serve

        serve(channel, cells, int(sys.argv[2]))
    os.close(channel)
    os.close(cells)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.kill(os.getpid(), signal.SIGCHLD)  # it may have ended before we could hear of it
    os._exit(watch(slot, lifeline, ended))


if __name__ == "__main__":
    main()
