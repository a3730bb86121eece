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


def test_the_text_about_memory_names_the_limit_and_the_pages_of_objects(start):
    code = (
        "import mmap, os, time\n"
        "file = os.memfd_create('x'); os.ftruncate(file, 8 << 20)\n"
        "whole = mmap.mmap(file, 8 << 20, prot=mmap.PROT_READ)\n"
        "sum(whole[::4096]); print(flush=True); time.sleep(600)"
    )
    process = start(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    shared = limits.shared_bytes(process.pid)
    assert shared >= 8 << 20
    assert limits.resident_bytes(process.pid) > shared  # they count
    text = limits.describe_memory(20 << 20, 10 << 20, 8 << 20)
    assert text == (
        "the slot used 20 MiB of memory (8 MiB of it are shared pages, such as those of objects "
        "that the task has read: they count as well), the limit is 10 MiB, `memory_bytes` of the "
        "[[pool]], or --memory of the worker: read less at a time, or ask the operator of the site "
        "for more"
    )
    assert "shared" not in limits.describe_memory(20 << 20, 10 << 20, 1 << 19)
