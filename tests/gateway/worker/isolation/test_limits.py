"""No entry of /proc about other people's processes ever ends an agent."""

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.worker.isolation import limits

pytestmark = pytest.mark.real

DEADLINE_S = 200.0


@pytest.fixture
def start():
    """Start processes, each in a session of its own; gone in the end."""
    started = []

    def start_(*command, **more):
        started.append(subprocess.Popen(command, start_new_session=True, **more))
        return started[-1]

    yield start_
    for process in started:
        process.kill()
        process.wait(DEADLINE_S)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("name", ["slüp".encode(), b"sl\xff) p"], ids=["utf-8", "no encoding"])
def test_a_program_of_any_name_on_the_host_does_not_keep_a_slot_from_its_end(tmp_path, start, name):
    program = os.path.join(os.fsencode(tmp_path), name)
    shutil.copy(shutil.which("sleep"), program)
    start(program, b"300")
    slot = start("sleep", "300")
    descriptor = os.pidfd_open(slot.pid)
    limits.kill_session(slot.pid)
    readable, _, _ = select.select([descriptor], [], [], DEADLINE_S)
    os.close(descriptor)
    assert readable


def test_a_descendant_that_hides_its_pages_is_counted_by_its_resident_memory(start, monkeypatch):
    child = "import sys, time; print(flush=True); time.sleep(300)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = start(sys.executable, "-c", parent, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    (hidden,) = limits.descendants(process.pid)
    read = Path.read_bytes

    def refuse(path):
        if str(path) == f"/proc/{hidden}/smaps_rollup":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    used = limits.memory_used_bytes(process.pid, limit_bytes=1)
    assert limits.resident_bytes(hidden) <= used
    limits.kill_session(process.pid)
