"""The functions that slots run: tasks that leave evidence of each run.

They import the standard library only, and travel by value (see client.py): a slot does not have
this package.
"""

import os
import time


def leave(folder, *words):
    """Add a line of evidence with one write: lines of several slots do not mix."""
    line = " ".join(str(word) for word in words) + "\n"
    descriptor = os.open(os.path.join(folder, "evidence"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def work(folder, key, number, seconds, manner, payload_bytes=0):
    """Run for a while; `begin` and `end` of the run are on the disk.

    Args:
        folder: where evidence is left.
        key: of the job, by its client.
        number: of the task.
        manner: "steady" returns; "flaky" raises the first time; "wrong" raises each time.
        payload_bytes: how much comes back beside the value.
    """
    run = os.urandom(6).hex()
    leave(folder, "begin", key, number, run, os.getpid())
    time.sleep(seconds)
    is_first = False
    if manner == "flaky":
        try:
            flag = os.path.join(folder, "flaky", f"{key}-{number}")
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            is_first = True
        except FileExistsError:
            pass
    if is_first or manner == "wrong":
        leave(folder, "raised", key, number, run, os.getpid())
        raise ValueError(f"task {number} of {key} raises")
    leave(folder, "ok", key, number, run, os.getpid())
    return number * 7 + 1, b"\0" * payload_bytes


def probe(number):
    """Answer at once: recovery is measured by it."""
    return number
