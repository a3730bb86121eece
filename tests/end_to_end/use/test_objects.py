"""Objects on one host: real clients, gateway, object host, agent and slots."""

import gc
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import cloudpickle
import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from support.processes import wait_until
from support.vandal import Vandal

from federation import Client, GridError, ObjectRef
from federation.engine.objects import LeftResult
from federation.errors import ObjectLost, ObjectRefused, SerializationError, TaskCrashed
from federation.messages.messages import Assign, Report
from federation.objects.bodies import PYTHON
from federation.objects.left import left_value
from federation.sessions import credentials
from gateway.cli.main import cli

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIZE = 1_000_000  # numbers of 8 bytes
# Of links in /proc: a file without a name has the number of its inode there.
IN_MEMORY, ON_DISK = "/memfd:gridfed-object", "spilled/#"


@dataclass
class Deal:
    book: object
    count: int


def described(array, *more, deals=()):
    """A task's view: the sum, whether it could be changed, and whether it is a copy."""
    arrays = [array, *more, *(each.book["a"][0] for each in deals)]
    return [(float(each.sum()), each.flags.writeable, each.flags.owndata) for each in arrays]


def summed(array, number=0):
    return float(array.sum()) + number


def changed(array):
    array[0] = 1


def crash(_array):
    os.kill(os.getpid(), signal.SIGKILL)


def waited(path, array):
    Path(path).touch()
    while Path(path).exists():
        time.sleep(0.01)
    return float(array.sum())


def processes(site):
    """The gateway and all that it has started: object host, agent, slots."""
    parent = psutil.Process(site.gateway.pid)
    return [parent, *parent.children(recursive=True)]


def is_of_object(link):
    return IN_MEMORY in link or ON_DISK in link


def held(site):
    """The number of open or mapped files of objects in the site's processes."""
    count = 0
    for each in processes(site):
        folder = f"/proc/{each.pid}/fd"
        with suppress(OSError, psutil.Error):
            for name in os.listdir(folder):
                with suppress(OSError):
                    count += is_of_object(os.readlink(f"{folder}/{name}"))
            mapped = Path(f"/proc/{each.pid}/maps").read_text()
            count += sum(map(mapped.count, (IN_MEMORY, ON_DISK)))
    return count


def held_by(process):
    """The number of files of objects that one process has."""
    count, folder = 0, f"/proc/{process.pid}/fd"
    with suppress(OSError, psutil.Error):
        for name in os.listdir(folder):
            with suppress(OSError):
                count += is_of_object(os.readlink(f"{folder}/{name}"))
    return count


def command_of(process):
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def kill_part(site, module):
    """Kill the processes of a module, as the kernel would; wait for them if they start again."""
    parts = []

    def found():
        parts[:] = [each for each in processes(site) if module in command_of(each)]
        return parts

    wait_until(found)
    for each in parts:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    for each in parts:
        wait_until(lambda each=each: is_over(each))


def is_over(process):
    """Whether a process has ended; it may be reaped while we look."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def drop_by_command(site, name, code=0):
    done = CliRunner().invoke(cli, ["objects", "drop", name, "--gateway", site.address])
    assert done.exit_code == code, done.output
    return done.output


def test_a_name_can_be_taken_back_and_stays_so_through_a_crash(make_site):
    site = make_site(1)
    with site.client() as client:
        ref = client.put(np.ones(SIZE), name="book")
        assert "still held by 1 client session" in client.release("book")
        with pytest.raises(ObjectLost, match="has named no object 'book'"):
            client.object("book")
        host = host_of(site)
        site.kill()
        site.start()
        assert client.submit(summed, ref).result() == SIZE
        assert host_of(site) == host
        assert client.ask("objects")[0]["names"] == []
        del ref
        client.put(np.zeros(SIZE), name="book")
        wait_until(lambda: not any(each["sessions"] for each in client.ask("objects")))
        assert drop_by_command(site, "book").endswith("dropped: 7.63 MiB freed\n")
        assert "has named no object 'book'" in drop_by_command(site, "book", code=1)
        assert "dropped: 7.63 MiB freed" in site.text()
    listed = CliRunner().invoke(cli, ["objects", "x", "--gateway", site.address])
    assert (listed.exit_code, "no object here has the name" in listed.output) == (1, True)


def test_tasks_read_arrays_of_references_in_place_wherever_they_stand(client):
    array = np.arange(float(SIZE))
    ref = client.put(array)
    whole = (float(array.sum()), False, False)
    assert client.submit(described, ref).result() == [whole]
    deal = Deal({"a": [ref]}, 1)
    assert client.submit(described, ref, ref, deals=(deal, deal)).result() == [whole] * 4
    assert list(client.map(summed, [ref] * 50, range(50))) == [whole[0] + at for at in range(50)]
    assert ref.size > array.nbytes
    (copy,) = ref.where()
    assert copy["bytes"] == ref.size


def test_a_value_comes_back_and_equal_values_are_one_object(client):
    value = {"name": "book", "array": np.ones(SIZE), "text": "x" * 100}
    one, other = client.put(value), client.put(value)
    assert one.digest == other.digest
    assert len({each["digest"] for each in client.ask("objects")} & {one.digest}) == 1
    one.release()
    found = other.result()
    assert found["text"] == value["text"]
    np.testing.assert_array_equal(found["array"], value["array"])
    assert client.submit(summed, other).result is not None
    with pytest.raises(ObjectLost, match="released"):
        one.result()


def test_the_label_of_an_object_outlives_its_gateway(make_site):
    site = make_site(1)
    with site.client() as client, site.client() as other:
        ref = client.put(np.ones(SIZE), name="ones", residency=["home", "not-site:tokyo"])
        words = ["site:local", "not-site:tokyo"]
        assert ref.residency == words
        assert client.submit(summed, ref).result() == SIZE
        site.kill()
        site.start()
        found = other.object("ones")
        assert found.residency == words
        assert found.where()[0]["residency"] == words
        assert other.submit(summed, found).result() == SIZE
        [shown] = client.ask("objects")
        assert shown["residency"] == words
        kept = client.options(results="ref").submit(np.array, ref).result()
        assert kept.where()[0]["residency"] == words


def test_a_task_that_changes_an_argument_is_told_to_copy_it(client):
    with pytest.raises(ValueError, match="read-only") as raised:
        client.submit(changed, client.put(np.zeros(10))).result()
    assert "copy()" in "".join(raised.value.__notes__)


def test_references_that_nobody_holds_any_more_leave_nothing_behind(make_site):
    site = make_site(2)
    with site.client() as client:
        ref = client.put(np.ones(SIZE))
        assert client.submit(summed, ref).result() == SIZE
        # The inputs hold the only references.
        assert list(client.map(summed, (client.put(np.full(1000, at)) for at in range(20)))) == [
            1000.0 * at for at in range(20)
        ]
        assert held(site) > 0
        assert len(client.ask("objects")) >= 1
        del ref
        wait_until(lambda: not client.ask("objects"))
        wait_until(lambda: held(site) == 0)


CLIENT = """
import sys, time, numpy
from federation.sessions import credentials
from federation import Client, GridError, ObjectRef
client = Client(sys.argv[1])
ref = client.put(numpy.ones(1000000))
print(client.submit(lambda array: float(array.sum()), ref).result(), flush=True)
time.sleep(1000)
"""


def test_a_client_that_calls_one_function_again_and_again_holds_no_object_of_earlier_calls(
    make_site,
):
    """Its job stays open all the time."""
    site = make_site(1, config='[objects]\nmemory = "64 MB"')
    with site.client() as client:
        for number in range(12):
            ref = client.put(np.full(SIZE, float(number)))
            assert client.submit(summed, ref).result() == number * SIZE
            del ref
            made = client.submit(array_of, number)
            assert client.submit(summed, made).result() == number * SIZE
            del made
            wait_until(lambda: not client.ask("objects"))
        assert len(client.ask("jobs")) <= 4


def array_of(number):
    return np.full(SIZE, float(number))


def test_kill_9_of_a_client_leaves_nothing_behind(make_site):
    site = make_site(1)
    command = [sys.executable, "-c", CLIENT, site.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert float(process.stdout.readline()) == 1_000_000
        assert held(site) > 0
        process.kill()
    wait_until(lambda: held(site) == 0)


def test_kill_9_of_slots_and_agent_loses_no_object_and_leaves_nothing_behind(make_site):
    site = make_site(1)
    with site.client() as client:
        ref = client.put(np.ones(SIZE))
        with pytest.raises(TaskCrashed):
            client.submit(crash, ref).result()
        assert client.submit(summed, ref).result() == SIZE
        kill_part(site, "gateway.worker.agent")
        assert client.submit(summed, ref).result() == SIZE
        del ref
        wait_until(lambda: held(site) == 0)


def test_an_object_whose_host_was_killed_is_lost_by_name_and_can_be_put_again(make_site):
    site = make_site(1)
    with site.client() as client:
        ref = client.put(np.ones(SIZE))
        assert client.submit(summed, ref).result() == SIZE
        kill_part(site, "gateway.objects.host")
        wait_until(lambda: held(site) == 0)  # the agent has noticed, too
        with pytest.raises(ObjectLost, match=ref.digest) as lost:
            client.submit(summed, ref).result()
        assert "site local" in str(lost.value)
        with pytest.raises(ObjectLost, match="local"):
            ref.where()
        again = client.put(np.ones(SIZE))  # by the next object host
        assert client.submit(summed, again).result() == SIZE


def host_of(site):
    """The object host of a site, wherever it came from."""
    with site.client() as client:
        return psutil.Process(client.ask("object_host")["pid"])


def test_calls_with_references_go_on_with_a_gateway_that_was_killed(make_site, tmp_path):
    site = make_site(1)
    started = tmp_path / "started"
    with site.client() as client, site.client() as other:
        ref = client.put(np.ones(SIZE), name="ones")
        seen = other.object("ones")  # it has no bytes of it
        host = host_of(site)
        future = client.submit(waited, str(started), ref)
        wait_until(started.exists)
        more = client.map(summed, [ref] * 5, range(5))
        site.kill()
        site.start()
        started.unlink(missing_ok=True)
        wait_until(lambda: started.exists() or future.done())
        started.unlink(missing_ok=True)
        assert future.result() == SIZE
        assert list(more) == [SIZE + at for at in range(5)]
        assert other.submit(summed, seen).result() == SIZE
        assert host_of(site) == host  # nothing was put again
        assert [each["digest"] for each in client.ask("objects")] == [ref.digest]
        assert client.object("ones").digest == ref.digest
        site.kill()  # again, and the next run finds it as well
        site.start()
        assert client.submit(summed, ref).result() == SIZE
        assert host_of(site) == host


def test_what_only_a_client_held_is_let_go_of_by_the_next_gateway_too(make_site):
    site = make_site(1, config="[limits]\ngrace_s = 2")
    with site.client() as client:
        ref = client.put(np.ones(SIZE))
        host = host_of(site)
        site.kill()
        site.start()
        assert client.submit(summed, ref).result() == SIZE
        del ref
        wait_until(lambda: not client.ask("objects"))
        wait_until(lambda: held_by(host) == 0)
    site.stop()
    wait_until(lambda: not host.is_running())


def test_a_detached_job_keeps_its_objects_without_its_client_and_through_a_crash(
    make_site, tmp_path
):
    site = make_site(1, config="[limits]\ngrace_s = 1")
    started = tmp_path / "started"
    with site.client() as client:
        calls = [(str(started), client.put(np.full(SIZE, at))) for at in (1.0, 2.0)]
        job = client.submit_job(waited, calls, star=True).id
        named = client.submit_job(summed, [client.put(np.ones(10))]).id
    wait_until(started.exists)
    site.kill()
    site.start()
    with site.client() as client:
        wait_until(started.exists)
        assert all(not each["sessions"] for each in client.ask("objects"))
        wait_until(lambda: started.unlink(missing_ok=True) or client.job(job).state == "done")
        assert list(client.job(job).results()) == [SIZE, 2.0 * SIZE]
        assert list(client.job(named).results()) == [10.0]
        wait_until(lambda: not client.ask("objects"))
    wait_until(lambda: held(site) == 0)


def test_objects_outlive_a_polite_stop_of_their_gateway(make_site, tmp_path):
    site = make_site(1)
    started = tmp_path / "started"
    with site.client() as client, site.client() as other:
        ref = client.put(np.ones(SIZE), name="ones")
        seen = other.object("ones")
        job = client.submit_job(waited, [(str(started), ref)], star=True).id
        wait_until(started.exists)
        future = client.submit(summed, ref, 1)  # waits behind it
        host = host_of(site)
        site.stop()
        assert "1 objects of 7.63 MiB are still held" in site.text()
        started.unlink()
        site.start()
        wait_until(started.exists)
        started.unlink()
        assert future.result() == SIZE + 1
        assert list(client.job(job).results()) == [SIZE]
        assert other.submit(summed, seen).result() == SIZE
        assert host_of(site) == host  # nothing was put again
        assert client.object("ones").digest == ref.digest
        ref.release()
        seen.release()
        client.put(1, name="ones", for_s=0.1)
        wait_until(lambda: not client.ask("objects"))
    site.stop()
    wait_until(lambda: is_over(host))  # nothing was held


def test_a_detached_job_whose_objects_were_lost_names_them(make_site, tmp_path):
    site = make_site(1)
    started = tmp_path / "started"
    with site.client() as client:
        ref = client.put(np.ones(10))
        job = client.submit_job(waited, [(str(started), ref)] * 2, star=True).id
        digest = ref.digest
        host = host_of(site)
    wait_until(started.exists)
    site.stop()
    host.kill()
    started.unlink()
    site.start()
    with site.client() as client, pytest.raises(ObjectLost, match=digest):
        list(client.job(job).results())


def test_a_client_puts_again_what_was_lost_with_gateway_and_object_host(make_site, tmp_path):
    site = make_site(1)
    started = tmp_path / "started"
    with site.client() as client, site.client() as other:
        ref = client.put(np.ones(SIZE), name="ones")
        seen = other.object("ones")
        future = client.submit(waited, str(started), ref)
        lost = other.submit(summed, seen, 1)  # waits behind it
        wait_until(started.exists)
        host = host_of(site)
        site.kill()
        host.kill()
        site.start()
        started.unlink(missing_ok=True)
        wait_until(lambda: started.exists() or future.done())
        started.unlink(missing_ok=True)
        assert future.result() == SIZE
        with pytest.raises(ObjectLost, match="put it again"):
            lost.result()
        with pytest.raises(ObjectLost, match="ones"):
            other.object("ones")


def test_a_name_keeps_an_object_for_a_time_without_its_client(make_site):
    site = make_site(1)
    with site.client() as client:
        first = client.put(np.ones(SIZE), name="book", for_s=3600).digest
        client.put([1], name="short", for_s=0.2)
    with site.client() as client:
        ref = client.object("book")
        assert ref.digest == first
        assert client.submit(summed, ref).result() == SIZE
        assert float(ref.result().sum()) == SIZE

        def is_gone():
            try:
                client.object("short").release()
            except ObjectLost as error:
                return "short" in str(error)

        wait_until(is_gone)
        with pytest.raises(ObjectLost, match="other"):
            client.object("other")


def test_references_where_they_can_not_work_are_refused_with_a_reason(client):
    ref = client.put([1, 2])
    with pytest.raises(ObjectRefused, match="for project other"):
        client.options(project="other").submit(len, ref)
    with pytest.raises(SerializationError, match="argument"):
        client.submit(lambda: ref)
    with pytest.raises(SerializationError, match="argument"):
        client.put([ref])
    with pytest.raises(ObjectRefused, match="limit is 256"):
        client.submit(len, [client.put(each) for each in range(257)])
    with pytest.raises(ValueError, match="name"):
        client.put(1, name="")
    with pytest.raises(ValueError, match="for_s"):
        client.put(1, name="x", for_s=0)


def test_a_client_of_another_network_namespace_is_told_so(client, monkeypatch):
    from federation.engine import objects

    def refuse(*_):
        raise ConnectionRefusedError

    monkeypatch.setattr(objects, "BlockingObjectSocket", refuse)
    with pytest.raises(ObjectRefused, match="another"):
        client.put(1)


def test_calls_without_references_go_to_workers_without_an_object_host(make_site):
    site = make_site(0)
    site.add_worker(1)
    with site.client() as client:
        assert client.submit(abs, -1).result() == 1
        with pytest.raises(ObjectRefused, match="no local pool"):
            client.put(1)


def test_many_references_in_one_map_are_lent_to_the_slot_in_turn(client):
    refs = [client.put(np.full(10, at)) for at in range(300)]
    assert list(client.map(summed, refs)) == [10.0 * at for at in range(300)]


def test_another_client_closes_and_a_client_is_freed_of_its_own(client):
    assert isinstance(client, Client)
    before = held_here()
    for _ in range(5):
        client.put(np.ones(1000))
    assert held_here() <= before


def files_here():
    return held_by(psutil.Process())


def mapped_here():
    return Path("/proc/self/maps").read_text().count("gridfed-object")


def held_here():
    return files_here() + mapped_here()


def test_the_command_shows_what_is_kept_and_what_holds_it(make_site):
    site = make_site(slots=1)

    def shown(*arguments):
        result = CliRunner().invoke(cli, ["objects", *arguments, "--gateway", site.address])
        return result.exit_code, result.output

    code, text = shown()
    assert (code, text.startswith("no objects: `client.put(value)` makes one")) == (0, True)
    with site.client() as client:
        named = client.put(np.ones(SIZE), name="curves", for_s=3600)
        other = client.put(np.zeros(10))
        assert named.size > other.size
        code, text = shown()
        first, second = text.splitlines()[1:]
        assert "7.63 MiB" in first
        assert "curves of " in first
        assert " left)" in first
        assert second.startswith(other.digest[:12])
        code, text = shown("curves", "--json")
        [row] = json.loads(text)["rows"]
        assert (code, row["digest"], row["sessions"]) == (0, named.digest, 1)
        assert shown(other.digest[:12])[0] == 0
        assert shown("cubes") == (1, "no object here has the name or digest cubes\n")
        code, text = shown("--by", "project", "--json")
        [row] = json.loads(text)["rows"]
        assert (code, row["objects"], row["named"]) == (0, 2, 1)
        assert row["bytes"] == named.size + other.size
        code, text = shown("--by", "user")
        heads = ["user", "objects", "size", "named", "GB-hours", "cost"]
        assert (code, text.splitlines()[0].split()) == (0, heads)
        assert shown("--by", "user", "--lost")[0] == 2
        assert shown("--lost") == (0, "no object was lost since this gateway was started\n")
        kill_part(site, "gateway.objects.host")
        wait_until(lambda: not client.ask("objects"))
        code, text = shown("--lost")
        assert (code, "curves of " in text, len(text.splitlines())) == (0, True, 3)
        [row] = json.loads(shown("curves", "--lost", "--json")[1])["rows"]
        assert row["digest"] == named.digest
        assert row["lost_at_s"] > row["put_at_s"]


# --- the books
# -------------------------------------------------------------------------------


PRICE = """
[objects]
hold = "{price}"

[[budget]]
name = "all"
hard = true
amount = "{most}"
"""


def by_kind(site):
    """The costs in the report, by kind."""
    command = ["report", "cost", "--by", "kind", "--json", "--gateway", site.address]
    result = CliRunner().invoke(cli, command)
    return {row["kind"]: row for row in json.loads(result.output)["rows"]}


def test_held_bytes_are_billed_through_crashes_and_stops_and_nothing_twice(make_site):
    price = 1_000_000
    config = PRICE.format(price=f"{price} USD/GB-month", most="1000000 USD")
    site = make_site(1, config=config)
    with site.client() as client:
        ref = client.put(np.ones(SIZE), name="ones")
        [shown] = client.ask("objects")
        site.kill()
        site.start()
        wait_until(lambda: client.ask("objects"))
        site.stop()
        site.start()
        wait_until(lambda: client.ask("objects"))
        [row] = client.ask("objects")
        assert row["put_at_s"] == shown["put_at_s"]
        assert row["held_byte_s"] / row["bytes"] <= time.time() - row["put_at_s"]
        assert row["cost_nanos"] > shown["cost_nanos"] >= 0
        command = ["objects", "--by", "user", "--json", "--gateway", site.address]
        [total] = json.loads(CliRunner().invoke(cli, command).output)["rows"]
        assert total["cost_nanos"] >= row["cost_nanos"]
        client.put(np.zeros(1), name="ones")  # it has lost its name
        ref.release()
        wait_until(lambda: row["digest"] not in [each["digest"] for each in client.ask("objects")])
        ended_at_s = time.time()
        [budget] = client.ask("budgets")
    site.stop()
    [database] = site.folder.rglob("gridfed.db")
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT started_at_s, ended_at_s, held_byte_s, cost_nanos FROM usage "
        rows = connection.execute(query + "WHERE worker = ? ORDER BY 1", [row["digest"]]).fetchall()
    assert rows[0][0] == shown["put_at_s"]
    assert rows[-1][1] < ended_at_s
    for one, other in pairwise(rows):
        assert 0 <= other[0] - one[1] < 1e-5  # they follow on each other, through all stops
    whole = row["bytes"] * (rows[-1][1] - rows[0][0])
    assert abs(sum(row[2] for row in rows) - whole) <= row["bytes"] * 1e-5 * len(rows)
    for row in rows:
        assert row[3] == (2 * price * 10**9 * row[2] + 2_628 * 10**12) // (2 * 2_628 * 10**12)
    # In budgets, in the report, and proved by the audit.
    assert budget["spent_nanos"] >= sum(row[3] for row in rows)
    audit = CliRunner().invoke(cli, ["audit", "--state", str(database.parent)])
    assert audit.exit_code == 0, audit.output
    site.start()
    found = by_kind(site)["held"]
    assert found["cost_nanos"] >= sum(row[3] for row in rows)
    assert found["held_byte_s"] >= sum(row[2] for row in rows)


def test_objects_without_a_price_are_free_and_counted(make_site):
    site = make_site(1)
    with site.client() as client:
        client.put(np.ones(SIZE)).release()
        wait_until(lambda: "held" in by_kind(site))
    found = by_kind(site)["held"]
    assert found["cost_nanos"] == 0
    assert found["held_byte_s"] > 0


def test_who_has_no_money_left_puts_nothing(make_site):
    site = make_site(1, config=PRICE.format(price="1000 USD/GB-month", most="0.000000001 USD"))
    with site.client() as client:
        client.put(np.ones(SIZE)).release()
        wait_until(lambda: by_kind(site).get("held", {}).get("cost_nanos"))
        with pytest.raises(
            ObjectRefused, match="holding objects costs 1000 USD/GB-month: the budget"
        ):
            client.put(np.ones(SIZE))


# --- the disk
# -------------------------------------------------------------------------------


def files_of(site, where):
    """The files of objects there that processes of the site have open or mapped."""
    found = set()
    for each in processes(site):
        folder = Path(f"/proc/{each.pid}/fd")
        with suppress(OSError, psutil.Error):
            for name in os.listdir(folder):
                with suppress(OSError):
                    if where in os.readlink(folder / name):
                        found.add((folder / name).stat().st_ino)
            for line in (folder.parent / "maps").read_text().splitlines():
                if where in line:
                    found.add(int(line.split()[4]))
    return found


def spilling(folder, spill=""):
    return f'[objects]\nmemory = "24 MiB"\nspill_dir = "{folder / "spilled"}"\n{spill}'


def test_objects_go_to_disk_when_memory_is_short_and_are_read_from_there(make_site, tmp_path):
    site = make_site(1, config=spilling(tmp_path))
    with site.client() as client:
        refs = [client.put(np.full(SIZE, float(each))) for each in range(3)]
        assert not files_of(site, ON_DISK)
        assert [client.submit(summed, ref).result() for ref in refs] == [0, SIZE, 2 * SIZE]
        refs += [client.put(np.full(SIZE, float(each))) for each in range(3, 8)]
        assert len(files_of(site, ON_DISK)) == 5
        # From disk, by the slot that had them in memory and by the client, and read-only.
        assert list(client.map(summed, refs)) == [SIZE * each for each in range(8)]
        assert client.submit(described, refs[0]).result() == [(0.0, False, False)]
        assert float(refs[1].result().sum()) == SIZE
        # The memory is free: no process has more than fits.
        wait_until(lambda: len(files_of(site, IN_MEMORY)) == 3)
        site.kill()  # the next gateway has them all
        site.start()
        assert list(client.map(summed, refs)) == [SIZE * each for each in range(8)]
        assert list((tmp_path / "spilled").iterdir()) == []
        refs.clear()
        wait_until(lambda: not held(site))


def test_what_fits_neither_in_memory_nor_on_disk_is_refused_and_harms_no_others(
    make_site, tmp_path
):
    site = make_site(1, config=spilling(tmp_path, 'spill = "10 MiB"'))
    with site.client() as client:
        refs = [client.put(np.full(SIZE, float(each))) for each in range(4)]
        with pytest.raises(ObjectRefused, match="release others first"):
            client.put(np.full(SIZE, 9.0))
        assert list(client.map(summed, refs)) == [SIZE * each for each in range(4)]
        del refs[0]
        wait_until(lambda: len(client.ask("objects")) == 3)
        assert client.put(np.full(SIZE, 9.0)).result()[0] == 9.0


def test_a_disk_that_takes_nothing_is_named(make_site, tmp_path):
    site = make_site(1, config=spilling(tmp_path))
    with site.client() as client:
        refs = [client.put(np.full(SIZE, float(each))) for each in range(3)]
        (tmp_path / "spilled").rmdir()
        (tmp_path / "spilled").touch()
        with pytest.raises(ObjectRefused, match=r"nor can others be written to .*Not a directory"):
            client.put(np.full(SIZE, 9.0))
        assert list(client.map(summed, refs)) == [SIZE * each for each in range(3)]


# --- results that stay
# -------------------------------------------------------------------------------


def ones(count, value=1.0):
    return np.full(count, value)


def text_of(size):
    return "x" * size


def listed(count):
    return {"arrays": [np.ones(count), np.zeros(count)], "name": "pair"}


def test_a_large_result_comes_as_a_file_and_without_a_copy(make_site):
    site = make_site(2)
    gc.collect()
    before = mapped_here()  # by what other tests have left
    with site.client() as client:
        future = client.submit(ones, SIZE)
        wait_until(future.done)
        wait_until(lambda: not client.ask("objects"))  # it is the client's alone by now
        assert (files_here(), mapped_here()) == (0, before + 1)
        found = future.result()
        assert future.result() is found
        assert found.sum() == SIZE
        found[0] = 5  # a private copy of that page
        assert client.submit(ones, 3).result().sum() == 3  # a small one, as ever
        both = client.submit(listed, SIZE).result()
        assert (both["name"], both["arrays"][0].sum()) == ("pair", SIZE)
        assert client.submit(text_of, 2 * SIZE).result() == "x" * 2 * SIZE
        sums = [float(each.sum()) for each in client.map(ones, [SIZE] * 5, range(5))]
        assert sums == [SIZE * each for each in range(5)]
        del future, found, both
        wait_until(lambda: not client.ask("objects"))
        wait_until(lambda: held(site) == 0)
        wait_until(lambda: gc.collect() >= 0 and mapped_here() <= before)


def test_results_outlive_object_host_and_gateway_once_they_have_arrived(make_site):
    site = make_site(1)
    with site.client() as client:
        value = client.submit(ones, SIZE)
        ref = client.options(results="ref").submit(ones, SIZE, 2.0).result()
        wait_until(value.done)
        kill_part(site, "gateway.objects.host")
        site.kill()
        assert value.result().sum() == SIZE
        assert ref.result().sum() == 2 * SIZE
        site.start()
        assert client.submit(summed, ref).result() == 2 * SIZE  # it is put again
    with site.client() as client:
        late = client.submit(ones, SIZE)
    assert late.result().sum() == SIZE  # after the client has ended


@pytest.mark.timeout(240)
def test_a_result_that_was_lost_before_it_arrived_is_made_again(make_site, monkeypatch, tmp_path):
    """The object host is killed when the gateway has recorded the result."""
    site = make_site(1)
    real, killed = LeftResult.own, []

    def own(self, *, as_reference):
        if len(killed) < 2:
            killed.append(1)
            kill_part(site, "gateway.objects.host")
        real(self, as_reference=as_reference)

    monkeypatch.setattr(LeftResult, "own", own)
    runs = tmp_path / "runs"
    with site.client() as client:
        assert client.submit(noted, str(runs), SIZE).result().sum() == SIZE
        assert list(runs.read_text()) == ["x"] * (1 + len(killed))
        killed.clear()
        sums = [each.sum() for each in client.map(noted, [str(runs)] * 4, [SIZE, 1, SIZE, SIZE])]
        assert sums == [SIZE, 1, SIZE, SIZE]
        killed.clear()
        view = client.options(results="ref")
        assert client.submit(summed, view.submit(noted, str(runs), SIZE).result()).result() == SIZE
        killed.clear()
        with pytest.raises(ObjectLost, match=r"local.*(b3|s2):"):  # the limit was for one run
            client.options(max_cost="1 USD").submit(ones, SIZE).result()


def noted(path, count):
    with open(path, "a") as file:
        file.write("x")
    return np.ones(count)


FEW_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import numpy
from federation import Client
with Client(sys.argv[1]) as client:
    few = list(client.map(numpy.ones, [200_000] * 300))
    refs = list(client.options(results="ref").map(numpy.ones, [10] * 1000))
    put = [client.put(numpy.full(10, at)) for at in range(300)]
    total = sum(client.map(numpy.sum, refs)) + sum(client.map(numpy.sum, put))
    print(sum(each.sum() for each in few) + total, flush=True)
"""


def test_results_and_references_keep_no_descriptors_of_a_client(make_site):
    site = make_site(2)
    command = [sys.executable, "-c", FEW_FILES, site.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    expected = 300 * 200_000 + 1000 * 10 + 10 * sum(range(300))
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) == expected


def test_a_result_may_have_more_bytes_than_a_message(client):
    count = 10_000_000  # 80 MB; the limit of messages is 64 MiB
    assert client.submit(ones, count).result().nbytes == 8 * count
    with pytest.raises(GridError, match="the limit is"):
        client.options(results="value").submit(ones, count).result()


def test_results_as_references_are_passed_on_to_other_calls(client):
    view = client.options(results="ref")
    ref = view.submit(ones, SIZE, 2.0).result()
    assert isinstance(ref, ObjectRef)
    with pytest.raises(ValueError, match="results='ref' is for submit and map"):
        view.submit_job(ones, [SIZE])
    assert client.submit(summed, ref).result() == 2 * SIZE
    assert client.submit(summed, view.submit(ones, 3).result(), 4).result() == 7  # small, too
    refs = list(view.map(ones, [10] * 3, range(3)))
    assert list(client.map(summed, refs)) == [0, 10, 20]
    assert ref.result().sum() == 2 * SIZE
    assert view.submit(abs, -1).result().result() == 1
    assert view.submit(print).result().result() is None
    with pytest.raises(ZeroDivisionError):
        view.submit(divmod, 1, 0).result()
    with pytest.raises(ValueError, match="'auto', 'value' or 'ref'"):
        client.options(results="other")


def test_results_that_are_not_wanted_are_let_go_of(make_site, tmp_path):
    site = make_site(1)
    with site.client() as client:
        client.submit(ones, SIZE)  # dropped before it is there
        assert client.submit(ones, 1).result().sum() == 1
        wait_until(lambda: not client.ask("objects"))
        keep = client.options(results="ref").submit(ones, SIZE).result()
        assert len(client.ask("objects")) == 1
        keep.release()
        wait_until(lambda: not client.ask("objects"))
    wait_until(lambda: held(site) == 0)


MAKER = """
import sys, time, numpy
from federation.sessions import credentials
from federation import Client, GridError, ObjectRef
client = Client(sys.argv[1]).options(results="ref")
refs = list(client.map(numpy.ones, [1000000] * 3))
print(len(refs), flush=True)
time.sleep(1000)
"""


def test_kill_9_of_the_client_of_left_results_leaves_nothing_behind(make_site):
    site = make_site(1, config="[limits]\ngrace_s = 1")
    command = [sys.executable, "-c", MAKER, site.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == 3
        assert held(site) > 0
        process.kill()
    wait_until(lambda: held(site) == 0)


def test_left_results_outlive_slots_agent_and_gateway(make_site):
    site = make_site(1)
    with site.client() as client:
        view = client.options(results="ref")
        ref = view.submit(ones, SIZE).result()
        unasked = client.submit(ones, SIZE, 3.0)
        wait_until(unasked.done)
        with pytest.raises(TaskCrashed):
            client.submit(crash, ref).result()
        kill_part(site, "gateway.worker.agent")
        assert client.submit(summed, ref).result() == SIZE
        site.kill()
        site.start()
        assert client.submit(summed, ref).result() == SIZE
        assert unasked.result().sum() == 3 * SIZE
        del ref, unasked
        wait_until(lambda: not client.ask("objects"))
        wait_until(lambda: held_by(host_of(site)) == 0)


def test_results_come_in_messages_to_a_client_that_is_far(make_site, monkeypatch):
    site = make_site(1)
    monkeypatch.setattr(credentials, "place_of_this_process", lambda: "elsewhere")
    with site.client() as client:
        assert client.submit(ones, SIZE).result().sum() == SIZE
        assert not client.ask("objects")
        with pytest.raises(ObjectRefused, match="on the gateway's own host"):
            client.options(results="ref").submit(ones, SIZE)


def test_a_worker_that_invents_the_digest_of_a_result_has_no_success(make_site):
    site = make_site(1)
    vandal = Vandal(site.address)
    about = {"slots": 1, "pool": "local", "python": PYTHON}
    dialogue = vandal.come_in("worker", {**about, "tags": {"objects": True, "lies": True}})
    invented = b"\x03" + b"x" * 32
    with site.client() as client:
        future = client.options(tags={"lies": True}, results="ref").submit(ones, 10)
        lies = 0
        while lies < 2:
            for message in dialogue.receive(vandal.answer(), 0.0):
                if isinstance(message, Assign):
                    value = left_value(invented, 1000)
                    report = Report(message.assignment, 0, [value], [], [], 10**9, 0, 1, left=True)
                    dialogue.post(report)
                    dialogue.flush(vandal.link.send, 0.0)
                    lies += 1
        with pytest.raises(ObjectLost, match=r"its result, object b3:7878.*is not held"):
            future.result(timeout=100)
        [row] = [each for each in client.ask("jobs") if each["id"] == future.job]
        assert (row["done"], row["failed"]) == (0, 1)
        assert "1 task without a result" in site.text()
    vandal.leave()


def poked(array, raw=b""):
    """A task that changes its argument: the sum before, and the length of the other one."""
    before = float(array.sum())
    array[0] = -1
    return before, len(raw), array.flags.owndata


def test_large_arguments_are_objects_by_themselves_and_may_be_changed(make_site, tmp_path):
    site, gate = make_site(1), tmp_path / "gate"
    with site.client() as client:
        array = np.arange(float(SIZE))
        raw = bytes(3 << 20)
        expected = (float(array.sum()), len(raw), True)
        waiting = client.submit(waited, str(gate), array)
        wait_until(gate.exists)
        assert [each["bytes"] > array.nbytes for each in client.ask("objects")] == [True]
        gate.unlink()
        assert waiting.result() == array.sum()
        assert [client.submit(poked, array, raw=raw).result() for _ in range(2)] == [expected] * 2
        assert array[0] == 0.0
        wait_until(lambda: not client.ask("objects"))  # nothing holds them any more
        by_message = client.options(results="value").submit(waited, str(gate), array)
        wait_until(gate.exists)
        assert client.ask("objects") == []
        gate.unlink()
        assert by_message.result() == array.sum()


def test_large_arguments_outlive_gateway_and_object_host(make_site, tmp_path):
    site = make_site(1, config=spilling(tmp_path))  # where references would be lost
    gate = tmp_path / "gate"
    with site.client() as client:
        array = np.arange(float(SIZE))
        running = client.submit(waited, str(gate), array)
        future = client.submit(poked, array)
        wait_until(gate.exists)
        host = host_of(site)
        site.kill()
        host.kill()
        site.start()
        gate.unlink(missing_ok=True)
        wait_until(lambda: gate.exists() or running.done())
        gate.unlink(missing_ok=True)
        assert running.result() == array.sum()
        assert future.result() == (float(array.sum()), 0, True)


def test_large_arguments_go_in_messages_where_a_worker_reads_no_objects(make_site, tmp_path):
    site, gate = make_site(0), tmp_path / "gate"
    site.add_worker(1)
    with site.client() as client:
        array = np.arange(float(SIZE))
        future = client.submit(waited, str(gate), array)
        wait_until(gate.exists)
        gate.unlink()
        assert future.result() == array.sum()
        assert client.ask("objects") == []
