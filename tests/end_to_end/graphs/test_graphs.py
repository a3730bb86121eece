"""Graphs with real clients, gateways, agents and slots."""

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from support.command import run
from support.processes import wait_until

from federation import DependencyFailed, GridError
from federation.errors import SerializationError

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass
class Deal:
    price: object
    legs: list[object]


def add(*values):
    return sum(values)


def total(values):
    return sum(values)


def worth(deals):
    return sum(each.price + sum(each.legs) for each in deals["book"])


def once(path, value):
    """Wait until a file is there, and note each run beside it."""
    with Path(path + ".runs").open("a") as noted:
        noted.write("x")
    until_s = time.monotonic() + 120  # a test that fails must end
    while not Path(path).exists() and time.monotonic() < until_s:
        time.sleep(0.01)
    return value


def boom(value):
    raise LookupError(f"no {value}")


def array(number):
    return np.full(500_000, float(number))


def described(values):
    return [(float(each.sum()), each.flags.writeable, each.flags.owndata) for each in values]


def runs(path):
    noted = Path(f"{path}.runs")
    return len(noted.read_text()) if noted.exists() else 0


@pytest.fixture
def gate(tmp_path):
    """A file for which tasks wait, and `open` for it."""
    return tmp_path / "gate"


def test_a_call_waits_for_futures_wherever_they_stand(make_site, gate):
    site = make_site(2)
    with site.client() as client:
        first = client.submit(once, str(gate), 1)
        deals = {"book": [Deal(first, [first, client.submit(add, first, 1)]), Deal(10, [])]}
        found = client.submit(worth, deals)
        named = client.submit(total, values=[found, first])
        mapped = client.map(add, [first, found, 5], [1, 2, first])
        wait_until(lambda: runs(gate) == 1, "the first task runs")
        assert "once (job " in client.job(named.job).why_waiting()
        gate.touch()
        assert found.result() == 1 + 1 + 2 + 10
        assert named.result() == 15
        assert list(mapped) == [2, 16, 6]
        assert client.submit(add, found, named).result() == 29  # both are done
    assert runs(gate) == 1


def test_a_chain_and_a_fan_in_give_what_a_loop_gives(make_site):
    site = make_site(2)
    with site.client() as client:
        last = client.submit(add, 0)
        for _ in range(200):
            last = client.submit(add, last, 1)
        numbers = [client.submit(add, number) for number in range(2000)]
        assert client.submit(total, numbers).result() == sum(range(2000))
        assert last.result() == 200


def test_the_first_failure_ends_what_waits_and_names_itself(make_site, gate):
    site = make_site(2)
    with site.client() as client:
        bad = client.submit(boom, client.submit(once, str(gate), "value"))
        behind = client.submit(add, client.submit(add, bad), 1)
        beside = client.submit(add, 1, 2)
        gate.touch()
        with pytest.raises(
            DependencyFailed, match=r"task 0 of job \w+ \(boom\), which it needs"
        ) as found:
            behind.result()
        assert isinstance(found.value.__cause__, LookupError)
        assert "no value" in str(found.value)
        assert beside.result() == 3
        late = client.submit(add, bad, 1)  # it has failed already
        with pytest.raises(DependencyFailed) as found:
            late.result()
        assert isinstance(found.value.__cause__, LookupError)
        assert isinstance(client.submit(add, late).exception().__cause__, LookupError)


def test_calls_behind_a_failure_of_which_the_client_hears_late_end_at_once(make_site, gate):
    site = make_site(2)
    with site.client() as client, site.client() as other:
        bad = client.submit(boom, client.submit(once, str(gate), "value"))
        wait_until(lambda: runs(gate) == 1, "the first task runs")
        with client._engine._leading.lock:  # it reads no message meanwhile, and sends its own
            gate.touch()
            failed = lambda: other.job(bad.job).progress().failed  # noqa: E731
            wait_until(failed, "the task has failed, as far as its gateway knows")
            chain = [client.submit(add, bad)]
            for number in range(30):
                last = chain[-1]
                chain.append(client.submit(*((add, last) if number % 2 else (total, [last]))))
            beside = client.submit(add, 1, 2)
        begun_s = time.monotonic()
        for each in chain:
            error = each.exception(300)
            assert isinstance(error, DependencyFailed)
            assert "which it needs, failed: LookupError: no value" in str(error)
            assert isinstance(error.__cause__, LookupError)
        took_s = time.monotonic() - begun_s
        assert took_s < 40, "a call that its gateway looks for is asked for after a minute"
        assert beside.result() == 3


def test_cancels(make_site, gate):
    site = make_site(1)
    with site.client() as client:
        first = client.submit(once, str(gate), 1)
        second = client.submit(add, first, 1)
        third = client.submit(add, second, 1)
        wait_until(lambda: runs(gate) == 1, "the first task runs")
        assert second.cancel()
        with pytest.raises(DependencyFailed, match="was cancelled"):
            third.result()
        gate.touch()
        assert first.result() == 1
        assert client.submit(add, first).result() == 1
        with pytest.raises(DependencyFailed, match="was cancelled"):
            client.submit(add, second).result()


class Unopened:
    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return _opened, (self.value,)


def _opened(value):
    if Path("/proc/self/cmdline").read_bytes().find(b"pytest") >= 0:
        raise AssertionError("the client has opened an inner result")
    made = Unopened.__new__(Unopened)
    made.value = value
    return made


def value_of(holder):
    return holder.value


def test_a_graph_of_dasks_contract(make_site):
    site = make_site(2)
    graph = {
        "x": 1,
        "y": (add, "x", 1),
        "z": (add, (total, ["y", "x"]), 10),
        "inner": (Unopened, "z"),
        "value": (value_of, "inner"),
        ("tuple", 0): (add, "z", "value"),
        "alias": ("tuple", 0),
        "bad": (boom, "x"),
        "worse": (add, "bad", 1),
    }
    with site.client() as client:
        assert client.get(graph, "z") == 13
        assert client.get(graph, ["x", ["alias", "z"], "value"]) == (1, (26, 13), 13)
        with pytest.raises(LookupError, match="no 1"):
            client.get(graph, ["z", "worse"])
        with pytest.raises(ValueError, match="the graph has a cycle: 'a' → 'b' → 'a'"):
            client.get({"a": (add, "b"), "b": (add, "a")}, "a")
        futures = client.persist(graph, ["z", "x"])
        assert futures["x"] == 1
        assert client.get({"more": (add, futures["z"], 1)}, "more") == 14
        names = {each["name"] for each in client.jobs()}
        assert {"add", "value_of", "boom"} <= names


def test_large_results_go_from_slot_to_slot_as_objects(make_site):
    site = make_site(2)
    with site.client() as client:
        view = client.options(results="auto")
        arrays = [view.submit(array, number) for number in range(3)]
        shown = client.submit(described, arrays)
        assert shown.result() == [(500_000.0 * at, False, False) for at in range(3)]
        assert client.submit(described, [arrays[1]]).result() == [(500_000.0, False, False)]
        kept = client.options(results="ref").submit(array, 7)
        assert client.submit(described, [kept]).result() == [(3_500_000.0, False, False)]


def test_a_lost_worker_is_made_good(make_site, gate):
    site = make_site(0)
    worker = site.add_worker(1)
    with site.client() as client:
        first = client.submit(once, str(gate), 20)
        second = client.submit(add, first, 1)
        wait_until(lambda: runs(gate) == 1, "the first task runs")
        worker.kill()
        site.add_worker(1)
        gate.touch()
        assert second.result(300) == 21


def test_a_client_takes_its_graph_to_the_gateway_that_comes_back(make_site, gate):
    site = make_site(1)
    with site.client() as client:
        done = client.submit(add, 1, 1)
        first = client.submit(once, str(gate), 20)
        second = client.submit(add, done, first, 1)
        third = client.submit(add, second, done)
        assert done.result() == 2
        wait_until(lambda: runs(gate) == 1, "the first task runs")
        site.kill()
        site.start()
        gate.touch()
        assert third.result(300) == 25


def test_a_detached_graph_outlives_its_client_and_its_gateway(make_site, gate):
    site = make_site(1)
    with site.client() as client:
        done = client.submit_job(add, range(10), name="numbers")
        assert done.wait() == "done"
        slow = client.submit_job(once, [(str(gate), 5)], star=True, name="slow")
        sums = client.submit_job(add, [(slow.task(0), each) for each in done.tasks()], star=True)
        last = client.submit_job(total, [sums.tasks()], name="last")
        failed = client.submit_job(boom, [slow.task(0)])
        behind = client.submit_job(add, [failed.task(0)])
        wait_until(lambda: runs(gate) == 1, "the slow task runs")
    site.kill()
    site.start()
    gate.touch()
    with site.client() as client:
        job = client.job(last.id)
        assert job.wait(300) == "done"
        assert list(job.results()) == [5 * 10 + sum(range(10))]
        assert client.job(behind.id).wait(300) == "failed"
        assert "which it needs, failed: LookupError: no 5" in client.job(behind.id).first_error
        (error,) = client.job(behind.id).results(return_exceptions=True)
        assert isinstance(error, DependencyFailed)
        assert isinstance(error.__cause__, LookupError)
        # Of an ended job, by a later client, attached.
        assert client.submit(add, client.job("last").task(0), 1).result() == 96
        with pytest.raises(DependencyFailed, match="not kept"):
            client.submit(add, client.job("last").task(7), 1).result()


def test_what_can_not_be_waited_for_is_refused_with_a_reason(make_site, gate):
    site = make_site(1)
    with site.client() as client, site.client() as other:
        first = client.submit(once, str(gate), 1)
        with pytest.raises(ValueError, match="is of another client: pass its result"):
            other.submit(add, first)
        with pytest.raises(
            ValueError, match="ends with this client, and a detached job may outlive it"
        ):
            client.submit_job(add, [first])
        with pytest.raises(SerializationError, match="a future can be pickled only among"):
            client.submit(lambda: first)
        with pytest.raises(DependencyFailed, match="project other"):
            client.options(project="other").submit(add, first).result()
        gate.touch()
        assert first.result() == 1
        assert other.submit(add, first).result() == 1
        assert list(client.submit_job(add, [first]).results()) == [1]
        text = str(client.explain(client.submit(add, first)))
        assert isinstance(text, str)


def test_a_deadline_ends_calls_that_wait(make_site, gate):
    site = make_site(1)
    with site.client() as client:
        first = client.submit(once, str(gate), 1)
        waits = client.options(deadline_s=time.time() + 3).submit(add, first)
        with pytest.raises(GridError, match="deadline"):
            waits.result(300)
        gate.touch()
        assert first.result() == 1


def test_many_threads_submit_graphs_at_once(make_site):
    site = make_site(2)
    found: dict[int, int] = {}
    with site.client() as client:

        def work(number):
            last = client.submit(add, number)
            for _ in range(30):
                last = client.submit(add, last, client.submit(add, 1))
            found[number] = last.result()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert found == {number: number + 30 for number in range(4)}


def test_a_client_that_leaves_takes_its_waiting_calls_along(make_site, gate):
    site = make_site(1)
    client = site.client()
    first = client.submit(once, str(gate), 1)
    waits = client.submit(add, first)
    wait_until(lambda: runs(gate) == 1, "the first task runs")
    client.shutdown(wait=False, cancel_futures=True)
    gate.touch()
    with site.client() as other:
        wait_until(
            lambda: not any(each["state"] == "waiting" for each in other.jobs()), "nothing waits"
        )
    assert waits.done() or first.done()


def step(value, note="", fails_at=-1):
    """Count on; note the process in which this step runs, and print."""
    if note:
        with Path(note).open("a") as noted:
            noted.write(f"{os.getpid()} {value}\n")
    print(f"step {value}")
    if value == fails_at:
        raise LookupError(f"no step {value}")
    return value + 1


def a_chain(client, length, **changes):
    client.submit(step, 0, **changes).result()  # its duration is known from now on
    found = [client.submit(step, 0, **changes)]
    for _ in range(length - 1):
        found.append(client.submit(step, found[-1], **changes))
    return found


def test_a_chain_of_short_calls_runs_in_one_slot_without_the_gateway_in_between(
    make_site, tmp_path
):
    site = make_site(2)
    with site.client() as client:
        note = tmp_path / "note"
        chain = a_chain(client, 300, note=str(note))
        assert chain[-1].result() == 300
        assert [each.result() for each in chain] == list(range(1, 301))
        rows = [line.split() for line in note.read_text().splitlines()[1:]]
        assert [int(value) for _, value in rows] == list(range(300))  # each once, in order
        moves = sum(rows[at][0] != rows[at + 1][0] for at in range(299))
        assert moves < 150, "most calls run in the slot of the one before"


def test_a_failure_and_output_in_a_chain_name_their_call(make_site, capsys):
    site = make_site(2)
    with site.client() as client:
        chain = a_chain(client.options(prints=True), 60, fails_at=40)
        with pytest.raises(LookupError, match="no step 40") as caught:
            chain[40].result()
        assert any("step(40" in note for note in caught.value.__notes__)
        assert chain[39].result() == 40
        with pytest.raises(DependencyFailed, match="which it needs, failed: LookupError") as fell:
            chain[59].result()
        assert isinstance(fell.value.__cause__, LookupError)
    lines = capsys.readouterr().out
    assert lines.count("step 39\n") == 1
    assert "step 41" not in lines


def test_a_slot_that_is_lost_in_a_chain_loses_no_step(make_site, tmp_path):
    site = make_site(1)
    with site.client() as client:
        mark = tmp_path / "mark"
        first = client.submit(dies_once, 0, "")
        first.result()
        chain = [client.submit(dies_once, 0, str(mark))]
        for _ in range(99):
            chain.append(client.submit(dies_once, chain[-1], str(mark)))
        assert chain[-1].result() == 100
        assert mark.exists()


def dies_once(value, mark):
    """Count on; the first time at fifty, end the slot."""
    if mark and value == 50 and not Path(mark).exists():
        Path(mark).write_text("dead")
        os._exit(1)
    return value + 1


def test_a_graph_has_stages_and_a_picture(make_site, tmp_path):
    site = make_site(2)
    with site.client() as client:
        parts = [client.submit(add, at, 1) for at in range(20)]
        whole = client.submit(total, parts)
        assert whole.result() == 210
        job = client.job(whole.job)
        stages = job.graph().stages
        assert [(each.name, each.depth, each.text) for each in stages] == [
            ("add", 0, "20 of 20 done"),
            ("total", 1, "1 of 1 done"),
        ]
        file = tmp_path / "graph.svg"
        shown = run("job", whole.job, "--gateway", site.address, "--graph", str(file))
        assert "stage  function" in shown
        assert "20 of 20 done" in file.read_text()
