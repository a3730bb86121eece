"""The actions of a user, on a real gateway with real workers."""

import asyncio
import concurrent.futures
import dataclasses
import datetime
import itertools
import operator
import os
import pickle
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from support.processes import wait_until

import federation
from federation import Client
from federation.engine.engine import ClientEngine
from federation.errors import (
    GatewayUnreachable,
    JobRefused,
    RemoteTraceback,
    SerializationError,
    TaskTimeout,
)
from federation.payload import seal_function

pytestmark = pytest.mark.real


def square(x):
    return x * x


class Local:
    """A class that workers do not have."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Local and other.value == self.value

    __hash__ = None


class NeedsTwo(Exception):
    """An exception that does not survive pickle's round trip."""

    def __init__(self, one, two):
        super().__init__(one)
        self.two = two


def test_submit_and_result(client):
    assert client.submit(square, 7).result() == 49


def test_futures_are_real_ones(client):
    future = client.submit(square, 3)
    assert isinstance(future, concurrent.futures.Future)
    done, pending = concurrent.futures.wait([future], timeout=300)
    assert (done, pending) == ({future}, set())
    assert list(concurrent.futures.as_completed([future])) == [future]


def test_keyword_arguments(client):
    assert client.submit(int, "ff", base=16).result() == 255


def test_map_is_in_order(client):
    assert list(client.map(square, range(5000))) == [x * x for x in range(5000)]


def test_map_of_several_iterables_and_of_none(client):
    assert list(client.map(operator.add, [1, 2, 3], [10, 20])) == [11, 22]
    assert list(client.map(square, [])) == []


def test_starmap(client):
    assert list(client.starmap(pow, [(2, 3), (3, 2)])) == [8, 9]


def test_map_takes_inputs_lazily(client):
    taken = []

    def endless():
        at = 0
        while True:
            taken.append(at)
            yield at
            at += 1

    results = client.map(square, endless())
    assert [next(results) for _ in range(10)] == [x * x for x in range(10)]
    results.close()
    assert len(taken) < 200_000


def test_an_item_of_a_slow_input_runs_before_the_next_one_is_there(client, tmp_path):
    first, second = str(tmp_path / "first"), str(tmp_path / "second")

    def inputs():
        yield first
        wait_until(lambda: os.path.exists(first), "the first task")
        yield second

    def touch(path):
        with open(path, "x"):
            return path

    assert list(client.map(touch, inputs())) == [first, second]


def test_map_raises_at_its_place_and_cancels_the_rest(client):
    def inverse(x):
        return 1 / x

    results = client.map(inverse, [1, 2, 0, 4])
    assert next(results) == 1
    assert next(results) == 0.5
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []


def test_map_timeout(client):
    with pytest.raises(TimeoutError):
        list(client.map(time.sleep, [30], timeout=0.2))


def test_a_remote_exception_arrives_with_its_traceback(client):
    def fails():
        raise ValueError("told you")

    with pytest.raises(ValueError, match="told you") as caught:
        client.submit(fails).result()
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in fails" in str(caught.value.__cause__)


def test_an_exception_whose_init_takes_other_arguments_arrives_whole(client):
    def fails():
        raise NeedsTwo("this text", 2)

    with pytest.raises(NeedsTwo, match="this text") as caught:
        client.submit(fails).result()
    assert (type(caught.value), caught.value.two) == (NeedsTwo, 2)


def test_an_exception_that_holds_what_cannot_travel_is_of_its_class_and_a_remote_error(client):
    def fails():
        raise NeedsTwo("this text", threading.Lock())

    with pytest.raises(NeedsTwo, match="this text") as caught:
        client.submit(fails).result()
    assert isinstance(caught.value, federation.errors.RemoteError)


def test_a_failure_says_which_call_where_and_with_what(client):
    def price(x, *, kind):
        if x == 3:
            raise ValueError("negative volatility")
        return x

    futures = [client.submit(price, x, kind="call") for x in range(5)]
    with pytest.raises(ValueError, match="negative") as caught:
        futures[3].result(timeout=300)
    [note] = caught.value.__notes__
    assert f"task 3 of job {futures[3].job}, on worker " in note
    assert f"host {socket.gethostname()}, pool " in note
    assert note.endswith("price(3, kind='call')")
    assert "negative volatility" in str(caught.value.__cause__)
    assert 'raise ValueError("negative volatility")' in str(caught.value.__cause__)


def test_a_task_that_was_stopped_says_which_call_too(client):
    with pytest.raises(TaskTimeout) as caught:
        list(client.options(timeout_s=0.2).map(time.sleep, [0, 30.5]))
    [note] = caught.value.__notes__
    assert "task 1 of job " in note
    assert "(30.5)" in note


def test_a_bar_that_stands_still_says_why(client, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("federation.engine.mapping.WHY_S", 0.05)
    monkeypatch.setattr("federation.engine.progress.LOG_INTERVAL_S", 0.0)
    end = str(tmp_path / "end")

    def waits(path):
        while not os.path.exists(path):
            time.sleep(0.01)

    def unknown(x):  # how long it takes is not known: it is not queued ahead at a worker
        return x * x

    slots = client._max_workers
    view = client.options(task_s=100.0)
    held = [view.submit(waits, end) for _ in range(slots)]
    wait_until(lambda: all(each.running() for each in held), "all slots are taken")
    late = view.submit(unknown, 3)
    assert late.why_waiting().startswith(f"all {slots} slots are busy")
    assert held[0].why_waiting() == ""
    job = view.submit_job(unknown, [1])
    assert job.why_waiting().startswith(f"all {slots} slots are busy")
    assert client.ask("explain", job=job.id)["waits_for"].startswith(f"all {slots} slots are busy")
    shown = []

    def look(self, text, refresh=True):
        shown.append(text)
        if text:
            open(end, "w").close()
            monkeypatch.setattr("federation.engine.mapping.WHY_S", 600.0)  # it asks no more

    monkeypatch.setattr("tqdm.tqdm.set_postfix_str", look)
    assert list(view.map(unknown, [2], progress=True)) == [4]
    assert any(text.startswith(f"waiting: all {slots} slots are busy") for text in shown)
    assert shown[-1] == "", "the reason goes with the wait"
    assert job.wait(60) == "done"
    assert late.why_waiting() == ""


def test_the_futures_that_run_are_those_whose_tasks_have_slots(client, tmp_path):
    def waits(begun, end):
        open(begun, "w").close()
        while not os.path.exists(end):
            time.sleep(0.01)

    slots, end = client._max_workers, str(tmp_path / "end")
    view = client.options(task_s=10.0)  # long ones: none is sent ahead
    futures = [view.submit(waits, str(tmp_path / str(at)), end) for at in range(slots + 1)]
    wait_until(lambda: sum(each.running() for each in futures) == slots, "all slots are known")
    begun = [os.path.exists(tmp_path / str(at)) for at in range(slots + 1)]
    assert [each.running() for each in futures] == begun
    open(end, "w").close()
    assert [each.result(timeout=300) for each in futures] == [None] * (slots + 1)
    assert not any(each.running() for each in futures)


def test_libraries_can_read_how_many_slots_there_are(client):
    slots = sum(pool["slots"] for pool in client.ask("status")["pools"])
    assert client._max_workers == slots > 0


def test_a_deadline_may_be_a_datetime_or_a_time_from_now(client):
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)
    assert client.options(deadline_s=at)._options.deadline_s == at.timestamp()
    before_s = time.time()
    view = client.options(deadline_s=datetime.timedelta(hours=2))
    assert before_s + 7200 <= view._options.deadline_s <= time.time() + 7200
    assert view.submit(square, 3).result() == 9


@pytest.mark.parametrize(
    "given",
    [
        datetime.timedelta(0),
        datetime.timedelta(hours=-1),
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        "0s",
        1_500_000_000,
    ],
)
def test_a_deadline_that_is_not_to_come_is_refused_at_once(client, given):
    with pytest.raises(ValueError, match=r"which is not after now, 20.*it must be a time from now"):
        client.options(deadline_s=given)


def test_timeouts_are_texts_as_well(client):
    future = client.submit(square, 3)
    assert future.result("60s") == 9
    assert future.exception(datetime.timedelta(minutes=1)) is None
    assert list(client.map(square, [4], timeout="1m")) == [16]
    assert list(client.as_completed([future], "1m")) == [future]
    assert client.job(future.job).details("1m")["id"] == future.job
    with pytest.raises(ValueError, match="timeout: 'soon' is not a length of time"):
        future.result("soon")


@pytest.mark.parametrize("for_s", [-1, 0, float("nan"), "0s"])
def test_a_name_of_an_object_lasts_for_some_time(client, for_s):
    with pytest.raises(ValueError, match=r"for_s is .*it must be above zero"):
        client.put([1], name="x", for_s=for_s)


def test_an_object_without_a_name_lasts_as_long_as_its_reference(client):
    with pytest.raises(ValueError, match=r"for_s is 60, but the object has no name: give name="):
        client.put([1], for_s=60)


def test_system_exit_in_a_task_fails_that_task_alone(client):
    with pytest.raises(SystemExit):
        client.submit(sys.exit, 3).result()
    assert client.submit(square, 2).result() == 4


def test_classes_and_functions_of_a_local_module_go_by_value(client):
    assert client.submit(lambda v: Local(v.value + 1), Local(1)).result() == Local(2)


def test_a_function_that_changed_is_sent_again(client):
    data = [1]

    def total():
        return sum(data)

    assert client.submit(total).result() == 1
    data.append(2)
    assert client.submit(total).result() == 3


def test_an_argument_that_cannot_be_pickled_is_named(client):
    with pytest.raises(SerializationError, match=r"argument 1.*\['key'\].*lock"):
        client.submit(operator.add, 1, {"key": threading.Lock()})


def test_a_result_that_cannot_be_pickled_is_named(client):
    with pytest.raises(federation.errors.ResultRefused, match="lock"):
        client.submit(threading.Lock).result()


def test_unknown_options_and_bad_values_are_told(client):
    with pytest.raises(TypeError, match="memroy"):
        client.options(memroy=1)
    with pytest.raises(ValueError, match="timeout_s"):
        client.options(timeout_s=-1)
    with pytest.raises(ValueError, match="amount"):
        client.options(max_cost="5")
    with pytest.raises(TypeError, match="gpu"):
        client.options(tags={"gpu": "two"})


def test_timeouts_kill(client):
    with pytest.raises(TaskTimeout, match=r"0\.3 s"):
        client.options(timeout_s=0.3).submit(time.sleep, 3600).result()


def test_what_nobody_can_run_is_refused_at_once(client):
    with pytest.raises(JobRefused, match="no tag gpu=2") as caught:
        client.options(tags={"gpu": 2}).submit(square, 1).result()
    assert caught.value.code == "tag-missing"


def test_prints_come_back_on_request(client, capsys):
    assert client.options(prints=True).submit(print, "hello from a task").result() is None
    client.submit(print, "not asked for").result()
    assert capsys.readouterr().out == "hello from a task\n"


def test_too_much_print_is_cut(client, capsys):
    def noisy():
        for _ in range(1000):
            print("x" * 10_000)

    client.options(prints=True).submit(noisy).result()
    out = capsys.readouterr().out
    assert len(out) < 100_000
    assert "earlier characters were cut" in out


def test_stderr_of_a_task_is_stderr_here(client, capsys):
    def both():
        print("out")
        print("\x1b[2Jerr", file=sys.stderr)

    client.options(prints=True).submit(both).result()
    out, err = capsys.readouterr()
    assert (out, err) == ("out\n", "\\x1b[2Jerr\n")


def test_reading_results_again_does_not_repeat_the_output(client, capsys):
    job = client.options(prints=True).submit_job(print, ["a", "b"])
    assert list(job.results()) == [None, None]
    assert capsys.readouterr().out == "a\nb\n"
    assert list(job.results()) == [None, None]
    assert list(client.job(job.id).results()) == [None, None]
    assert capsys.readouterr().out == ""


def await_file(path):
    while not path.exists():
        time.sleep(0.02)


def test_cancel_takes_back_what_waits_and_leaves_what_runs(client, tmp_path):
    go, never = tmp_path / "go", tmp_path / "never"
    running = [client.submit(await_file, go) for _ in range(2)]
    waiting = [client.submit(await_file, never) for _ in range(4)]  # of one job, so they queue
    try:
        assert [future.cancel() for future in waiting] == [True] * 4
        assert all(future.cancelled() for future in waiting)
        done, _ = concurrent.futures.wait(waiting, timeout=300)
        assert len(done) == 4
    finally:
        go.touch()
        never.touch()
    assert [future.result() for future in running] == [None, None]


def begin(path):
    path.touch()
    time.sleep(60)


def test_cancel_with_stop_ends_what_runs(client, tmp_path):
    future = client.submit(begin, tmp_path / "begun")
    wait_until((tmp_path / "begun").exists, "the task to run")
    assert future.cancel() is False
    assert future.cancel(stop=True) is True
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    assert client.submit(square, 3).result(timeout=200) == 9


def test_cancel_in_a_callback_does_not_hang(client):
    others = [client.submit(time.sleep, 60) for _ in range(3)]
    answers = []
    first = client.submit(square, 1)
    first.add_done_callback(lambda _: answers.extend(f.cancel(stop=True) for f in others))
    first.cancel(stop=True)
    concurrent.futures.wait([first, *others], timeout=300)
    assert all(future.done() for future in others)


def test_shutdown_cancels_futures(shared_site):
    client = shared_site.client()
    futures = [client.submit(time.sleep, 0.2) for _ in range(50)]
    client.shutdown(cancel_futures=True)
    assert all(future.done() for future in futures)
    assert sum(future.cancelled() for future in futures) > 30
    with pytest.raises(RuntimeError):
        client.submit(square, 1)


def test_shutdown_without_wait_still_resolves(shared_site):
    client = shared_site.client()
    future = client.submit(square, 5)
    client.shutdown(wait=False)
    assert future.result(timeout=200) == 25


def test_nothing_is_taken_after_a_shutdown_that_its_gateway_does_not_answer(make_site):
    site = make_site(0)
    client = site.client()
    future = client.submit(square, 5)
    os.kill(site.gateway.pid, signal.SIGSTOP)
    try:
        client.shutdown(wait=False, cancel_futures=True)
        with pytest.raises(RuntimeError, match="after shutdown"):
            client.submit(square, 6)
    finally:
        os.kill(site.gateway.pid, signal.SIGCONT)
    assert not concurrent.futures.wait([future], timeout=300).not_done
    assert future.cancelled()


def test_a_map_that_is_shut_down_gives_what_it_took_and_then_says_so(shared_site):
    client = shared_site.client()
    results = client.map(square, itertools.count())
    came = [next(results)]
    client.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        came.extend(results)
    assert came == [x * x for x in range(len(came))]


def test_a_client_that_is_closed_does_not_dial_again(shared_site):
    client = shared_site.client()
    engine = client._engine
    client.shutdown()
    engine.drain()  # as a thread does that was waiting on the socket meanwhile
    assert engine._line.link is None


def test_leaving_the_context_waits_for_what_was_submitted(shared_site):
    with shared_site.client() as client:
        futures = [client.submit(square, x) for x in range(100)]
    assert [future.result() for future in futures] == [x * x for x in range(100)]


def test_asyncio(client):
    async def main():
        loop = asyncio.get_running_loop()
        wrapped = asyncio.wrap_future(client.submit(square, 4))
        return await asyncio.gather(wrapped, loop.run_in_executor(client, square, 5))

    assert asyncio.run(main()) == [16, 25]


def test_a_client_can_be_pickled(client):
    view = pickle.loads(pickle.dumps(client.options(project="copied")))
    with view:
        assert view.submit(square, 6).result() == 36


def test_a_client_inside_a_task_finds_its_gateway(shared_site):
    def nested(x):
        with federation.Client() as inner:
            return inner.submit(operator.mul, x, 2).result()

    with shared_site.client() as client:
        assert client.submit(nested, 21).result(timeout=300) == 42


def test_partials_and_methods(client):
    assert client.submit(partial(pow, 2), 5).result() == 32
    assert client.submit("a-b".split, "-").result() == ["a", "b"]


def _open_jobs(client, futures):
    ours = {future.job for future in futures}
    listed = [job for job in client.jobs(limit=1000) if job["id"] in ours]
    assert len(listed) == len(ours)
    return sum(job["state"] != "done" for job in listed)


def test_a_function_of_its_own_for_every_call_leaves_few_jobs_open(client, monkeypatch):
    monkeypatch.setattr(federation.engine.books.shelves, "STREAMS_MAX", 4)
    futures = [client.submit(partial(pow, at), 2) for at in range(40)]
    assert len({future.job for future in futures}) == len(futures)
    assert [future.result() for future in futures] == [at * at for at in range(len(futures))]
    wait_until(lambda: _open_jobs(client, futures) <= 4, "the end of unused jobs")
    assert len(client._engine.streams) <= 4


def test_a_job_that_nobody_submits_to_is_closed_and_another_follows(client, monkeypatch):
    monkeypatch.setattr(federation.engine.engine, "IDLE_S", 0.01)
    client._engine._sweep_at_s = 0.0
    first = client.submit(square, 3)
    assert first.result() == 9
    wait_until(lambda: _open_jobs(client, [first]) == 0, "the end of the idle job")
    second = client.submit(square, 4)
    assert second.result() == 16
    assert second.job != first.job
    assert client._engine.error is None


def test_a_job_with_unfinished_tasks_is_not_idle(client, monkeypatch, tmp_path):
    def held(path):
        while not os.path.exists(path):
            time.sleep(0.002)

    monkeypatch.setattr(federation.engine.engine, "IDLE_S", 0.01)
    client._engine._sweep_at_s = 0.0
    first, sweeps = client.submit(held, str(tmp_path / "go")), []
    sweep = client._engine._jobs._filling.sweep
    monkeypatch.setattr(client._engine._jobs._filling, "sweep", lambda: sweeps.append(1) or sweep())
    wait_until(lambda: len(sweeps) > 5, "some looks at idle jobs")
    second = client.submit(held, str(tmp_path / "go"))
    (tmp_path / "go").touch()
    concurrent.futures.wait([first, second], timeout=300)
    assert first.job == second.job


def test_submits_of_many_threads_survive_the_closing_of_their_jobs(client, monkeypatch):
    monkeypatch.setattr(federation.engine.books.shelves, "STREAMS_MAX", 1)
    functions = [partial(operator.mul, at) for at in range(4)]

    def use(which):
        return [client.submit(functions[which], at) for at in range(50)]

    with ThreadPoolExecutor(4) as pool:
        found = [[f.result(timeout=300) for f in each] for each in pool.map(use, range(4))]
    assert found == [[which * at for at in range(50)] for which in range(4)]


def test_large_arguments_and_results_travel_in_pieces(client):
    data = bytes(range(256)) * (40 << 10)
    assert client.submit(operator.add, data, b"!").result() == data + b"!"


def test_too_large_an_argument_is_refused_and_harms_nobody(client):
    with pytest.raises(SerializationError, match=r"the limit of the gateway is.*`client.put`"):
        list(client.map(len, [bytes(70 << 20)]))  # one of `submit` is an object by itself
    assert client.submit(len, bytes(70 << 20)).result() == 70 << 20
    assert client.submit(square, 2).result() == 4


def test_a_result_that_is_too_large_for_a_message_comes_as_an_object_or_fails_its_task(client):
    kept = client.submit(bytes, 70_000_000)
    assert len(kept.result()) == 70_000_000
    with pytest.raises(federation.errors.ResultRefused, match=r"70,.*results=\"auto\""):
        client.options(results="value").submit(bytes, 70_000_000).result()


def test_nobody_there(tmp_path):
    with pytest.raises(GatewayUnreachable, match="the socket does not exist") as caught:
        Client(f"ipc://{tmp_path}/nothing.sock")
    assert "nothing.sock" in str(caught.value)


def test_somebody_there_who_does_not_answer(tmp_path):
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(f"{tmp_path}/deaf.sock")
        deaf.listen()
        with pytest.raises(GatewayUnreachable, match="does not answer as a gateway") as caught:
            Client(f"ipc://{tmp_path}/deaf.sock", connect_timeout_s=0.5)
    assert "gridfed up" not in str(caught.value)
    assert "Name another with Client(address), --gateway or $GRIDFED_GATEWAY." in str(caught.value)


def test_detached_jobs_survive_their_client(shared_site):
    with shared_site.client() as client:
        job = client.submit_job(square, range(3000), name="nightly")
        job_id = job.id
    with shared_site.client() as client:
        job = client.job(job_id)
        assert list(job.results()) == [x * x for x in range(3000)]
        assert job.wait(200) == "done"
        progress = job.progress()
        assert (progress.done, progress.total) == (3000, 3000)
        assert job.cost().currency == "USD"
        assert job.cost().user


def test_a_detached_job_with_a_failure(client):
    def picky(x):
        if x == 3:
            raise LookupError("three")
        return x

    results = list(client.submit_job(picky, range(5)).results(return_exceptions=True))
    assert results[:3] + results[4:] == [0, 1, 2, 4]
    assert isinstance(results[3], LookupError)


def test_a_detached_job_can_be_cancelled(client):
    job = client.submit_job(time.sleep, [60] * 20)
    assert job.cancel(stop=True) == 20
    assert job.wait(200) == "cancelled"


def test_an_unknown_job(client):
    with pytest.raises(federation.errors.JobNotFound):
        client.job("nonesuch").state  # noqa: B018


def test_a_cost_limit_stops_a_job(client):
    def spin(_):
        until = time.perf_counter() + 0.05
        while time.perf_counter() < until:
            pass

    view = client.options(max_cost="0.0000015 USD")  # about 135 ms of a slot at 0.04 USD an hour
    with pytest.raises(federation.errors.CostLimitReached):
        list(view.map(spin, range(50)))


def test_retries(client, tmp_path):
    def flaky(path):
        with open(path, "a") as file:
            file.write("x")
        with open(path) as file:
            if len(file.read()) < 3:
                raise OSError("not yet")
        return "at last"

    assert client.options(retries=2).submit(flaky, str(tmp_path / "n")).result() == "at last"


def test_the_bill_is_the_same_wherever_it_is_read(client):
    results = client.options(project="bill").map(square, range(2000))
    assert len(list(results)) == 2000
    job = client.job(results.job)
    job.wait(200)
    report = client.ask("report", kind="cost", by=["job"])
    column = report["columns"].index("cost_nanos")
    (row,) = [row for row in report["rows"] if row[0] == results.job]
    assert job.cost().nanos == row[column]
    assert (
        next(r for r in client.jobs(limit=1000) if r["id"] == results.job)["cost_nanos"]
        == row[column]
    )


def test_who_waits_for_a_detached_result_is_woken_when_it_is_there(client, tmp_path):
    started, go = tmp_path / "started", tmp_path / "go"

    def held():
        started.touch()
        while not go.exists():
            time.sleep(0.002)
        return "done"

    job = client.submit_job(held, [()], star=True)
    with ThreadPoolExecutor(1) as pool:
        # By itself the gateway would look again only after half a minute.
        answer = pool.submit(client.ask, "results", job=job.id, after=0, wait_s=30)
        wait_until(started.exists, "the start of the task")
        go.touch()
        (outcome,) = answer.result(timeout=200)["outcomes"]
    assert pickle.loads(outcome[1][0]) == "done"


def test_a_callback_that_exits_loses_nobody_elses_result(client):
    futures = [client.submit(square, at) for at in range(20)]
    futures[3].add_done_callback(lambda _: sys.exit(3))
    done, waiting = concurrent.futures.wait(futures, timeout=300)
    assert not waiting
    assert sorted(future.result() for future in done) == [at * at for at in range(20)]
    later = [client.submit(square, at) for at in range(5)]
    assert not concurrent.futures.wait(later, timeout=300).not_done


class ExitsWhenOpened:
    """A result that would end the client's process if the client opened it."""

    def __reduce__(self):
        return sys.exit, (5,)


def test_a_result_that_exits_when_it_is_opened_fails_alone(client):
    bad, good = client.submit(ExitsWhenOpened), client.submit(square, 3)
    assert not concurrent.futures.wait([bad, good], timeout=300).not_done
    assert isinstance(bad.exception(), SerializationError)
    assert good.result() == 9


def square_after(go, x):
    await_file(go)
    return x * x


def test_an_interrupt_half_way_loses_no_result(shared_site, monkeypatch, tmp_path):
    go = tmp_path / "go"
    with shared_site.client() as client:
        hear, left = ClientEngine._hear_results, [3]

        def interrupted(engine, message):
            hear(engine, message) if left[0] % 2 else None
            if left[0]:
                left[0] -= 1
                raise KeyboardInterrupt
            if not left[0] % 2:
                hear(engine, message)

        futures = [client.submit(square_after, go, at) for at in range(2000)]
        # Only now: a call of submit hears results as well, and an interrupt there ends the test.
        monkeypatch.setattr(ClientEngine, "_hear_results", interrupted)
        go.touch()
        for at, future in enumerate(futures):
            while True:
                try:
                    assert future.result(timeout=300) == at * at
                    break
                except KeyboardInterrupt:
                    continue
        assert left == [0]


def test_what_is_pending_when_a_client_is_closed_is_cancelled(shared_site):
    client = shared_site.client()
    future = client.submit(time.sleep, 60)
    client.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)  # as after a Ctrl-C
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(timeout=300)


def test_results_that_are_out_of_turn_are_waited_for(client, tmp_path):
    go = tmp_path / "go"

    def first_is_held(at):
        while at == 0 and not go.exists():
            time.sleep(0.002)
        return at

    job = client.submit_job(first_is_held, range(3))
    wait_until(lambda: job.progress().done == 2, "the end of the other two")
    found = client.ask("results", job=job.id, after=0, wait_s=0.5)
    assert all(first == 0 for first, *_ in found["outcomes"]) or not found["outcomes"]
    go.touch()
    assert list(job.results()) == [0, 1, 2]


def test_a_job_id_is_used_once_and_by_its_owner(shared_site):
    with shared_site.client() as ann, shared_site.client(user="mallory") as mallory:
        mine = ann.submit_job(square, range(3))
        assert list(mine.results()) == [0, 1, 4]
        mine.wait(300)
        sealed = seal_function(square)
        opening = dataclasses.replace(
            mallory._opening(sealed, mallory._engine, detached=True), job=mine.id, name="mine now"
        )
        stream = mallory._engine.open_stream(opening, sealed)
        mallory._engine.drive(lambda: stream.rejected, 30)
        assert "was used before" in stream.rejection.text
        used = ann.map(square, range(2))
        assert list(used) == [0, 1]
        ann.job(used.job).wait(300)
        again = dataclasses.replace(ann._opening(sealed, ann._engine), job=used.job)
        stream = ann._engine.open_stream(again, sealed)
        ann._engine.drive(lambda: stream.rejected, 30)
        assert "was used before" in stream.rejection.text


def test_leaving_by_ctrl_c_is_not_mistaken_for_a_lost_gateway(shared_site, caplog):
    def leave():
        with shared_site.client() as client:
            results.append(client.map(time.sleep, [60] * 4))
            raise KeyboardInterrupt

    results = []
    with pytest.raises(KeyboardInterrupt):
        leave()
    results[0].close()
    assert [each.getMessage() for each in caplog.records] == ["4 tasks dropped: interrupted"]


def test_an_interrupt_while_frames_are_taken_is_not_mistaken_for_a_lost_gateway(
    shared_site, caplog, monkeypatch
):
    def interrupted(self, now_s):
        if threading.current_thread() is not threading.main_thread():
            return exchange(self, now_s)
        monkeypatch.undo()
        raise KeyboardInterrupt

    exchange = ClientEngine._exchange
    with shared_site.client() as client:
        results = client.map(time.sleep, [2] * 4)
        monkeypatch.setattr(ClientEngine, "_exchange", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(results)
        results.close()
    assert not caplog.records


def test_a_second_ctrl_c_adds_no_traceback_to_the_first(shared_site, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt("second")

    def leave(client):
        with client:
            monkeypatch.setattr(client._engine, "drive", interrupted)
            raise KeyboardInterrupt("first")

    client = shared_site.client()
    with pytest.raises(KeyboardInterrupt, match="first") as caught:
        leave(client)
    assert caught.value.__context__ is None
    assert client._engine.closed
