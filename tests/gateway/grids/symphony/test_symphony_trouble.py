"""Faults of a Symphony engine: by either way, over the stand-in."""

import json
import sys
import tarfile
from contextlib import suppress
from io import BytesIO

import cloudpickle
import psutil
import pytest
import trio
import trio.testing
from fakes.symphony import WAYS, StandIn
from support.processes import unpack

from gateway.grids import engine_checks
from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.delegating import Begun, Broken, Cancelled, Done, Found, Label, Lost, Room
from gateway.grids.engine_checks import Stage, double, leave, nap
from gateway.grids.symphony.package import build_package
from gateway.grids.symphony.side import SideInterface

cloudpickle.register_pickle_by_value(engine_checks)
cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.thorough, pytest.mark.real]  # half a minute, in all
LIMIT_S = 40.0


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    made = StandIn(tmp_path_factory.mktemp("symphony"), 1)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def fresh(stand_in):
    cluster = stand_in.cluster
    cluster.early = cluster.echoes = False
    cluster.aborts_orphans = True
    cluster.hangs = ""
    cluster.slots = 1
    stand_in.rest.faults.clear()
    yield
    assert not cluster.open_sessions, "an orphan"


def stage_of(engine):
    return Stage(engine, cloudpickle.dumps, cloudpickle.loads)


async def wait_for(found):
    while not found():  # noqa: ASYNC110 - threads and processes tell nobody
        await trio.sleep(0.01)


@pytest.mark.parametrize("way", WAYS)
async def test_an_outcome_before_send_returns_and_every_one_twice(stand_in, way):
    stand_in.cluster.early = stand_in.cluster.echoes = True
    stage = stage_of(stand_in.engine(way))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            names = [stage.send(double, n) for n in range(5)]
            ends = [await stage.done(name) for name in names]
            assert [stage.values(end) for end in ends] == [[2 * n] for n in range(5)]
            for name in names:
                assert len(stage.ends(name)) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_session_that_is_aborted_is_opened_anew(stand_in, way):
    stage = stage_of(stand_in.engine(way))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            name = stage.send(nap, 600.0)
            await wait_for(lambda: stand_in.cluster.running)
            stand_in.cluster.abort(stand_in.cluster.open_sessions[0])
            assert isinstance(await stage.end(name), Lost)
            assert stage.values(await stage.done(stage.send(nap, 0.0))) == [0.0]


def sides():
    """The side processes that are ours."""
    for each in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # another test's, that has just ended
            if any(part.endswith("soam/side.py") for part in each.cmdline()):
                yield each


async def run_until_it_fails(stage, befall):
    """Run the engine until its connection is lost by `befall`; return the messages about it."""

    async def run():
        async with stage.opened():
            await befall()
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    return repr(caught.value.exceptions)


async def stage_settled(stand_in):
    """Wait until the journal has the tasks that were sent."""
    file = stand_in.folder / "home-soamapi" / "sessions.jsonl"
    await wait_for(lambda: file.read_text().rstrip().split("\n")[-1].startswith('{"sent"'))


async def run_until_its_side_is_killed(stage, stand_in, wait_s=600.0):
    """Run the engine, lose its side process while a parcel runs; return parcel and messages."""
    name = ""

    async def lose():
        nonlocal name
        name = stage.send(nap, wait_s)
        await wait_for(lambda: stand_in.cluster.running)
        await stage_settled(stand_in)
        for each in sides():
            each.kill()

    said = await run_until_it_fails(stage, lose)
    return name, said


@pytest.mark.parametrize("is_kept", [True, False])
async def test_what_runs_outlives_a_side_process_where_symphony_keeps_its_session(
    stand_in, is_kept
):
    cluster = stand_in.cluster
    cluster.aborts_orphans = not is_kept
    stage = stage_of(stand_in.engine("soamapi"))
    with trio.fail_after(LIMIT_S):
        name, said = await run_until_its_side_is_killed(stage, stand_in, 1.0)
        assert "the process of soamapi ended" in said
        if is_kept:
            assert stage.engine.holds(name)
        tries = len(cluster.started)
        stage.told.clear()
        async with stage.opened():
            end = await stage.end(name)
            assert isinstance(end, Done if is_kept else Lost)
            assert not any(isinstance(each, Found) for each in stage.told), "it is ours all along"
            assert stage.values(await stage.done(stage.send(nap, 0.0))) == [0.0]
        assert len(cluster.started) == tries + 1, "nothing was begun twice"


async def test_a_connection_that_is_lost_is_made_anew_and_leaves_nothing_running(stand_in):
    stand_in.cluster.aborts_orphans = False
    stage = stage_of(stand_in.engine("soamapi"))

    async def lose():
        name = stage.send(nap, 600.0)
        await wait_for(lambda: stand_in.cluster.running)
        stand_in.cluster.cut()
        assert isinstance(await stage.end(name), Lost)
        stage.send(nap, 0.0)  # needs a session, and there is nobody to open it

    with trio.fail_after(LIMIT_S):
        assert "the connection is lost" in await run_until_it_fails(stage, lose)
        stage.told.clear()
        async with stage.opened():
            assert not stand_in.cluster.running
            assert stage.values(await stage.done(stage.send(nap, 0.0))) == [0.0]


async def test_what_is_stopped_while_there_is_no_connection_is_stopped_by_the_next(stand_in):
    stand_in.cluster.aborts_orphans = False
    stage = stage_of(stand_in.engine("soamapi"))
    with trio.fail_after(LIMIT_S):
        name, _ = await run_until_its_side_is_killed(stage, stand_in)
        stage.engine.cancel([name], running=True)
        stage.told.clear()
        async with stage.opened():
            assert isinstance(await stage.end(name), Cancelled)
            await wait_for(lambda: not stand_in.cluster.running)


async def test_without_a_connection_for_long_tasks_go_elsewhere(stand_in, monkeypatch):
    """And the unwanted session is closed when there is a connection again."""
    stand_in.cluster.aborts_orphans = False
    stage = stage_of(stand_in.engine("soamapi", take_up_s=0.01))
    with trio.fail_after(LIMIT_S):
        name, _ = await run_until_its_side_is_killed(stage, stand_in)
        monkeypatch.setitem(stand_in.cluster.users, "Guest", "other")
        with pytest.raises(GridFault):
            await stage.engine.run(stage._hear)
        assert isinstance(await stage.end(name), Lost)
        monkeypatch.undo()
        stage.told.clear()
        async with stage.opened():
            assert not stand_in.cluster.open_sessions


@pytest.mark.parametrize("verb", ["create", "send", "kill", "connect"])
async def test_a_library_that_hangs_is_killed_and_its_tasks_are_told(stand_in, monkeypatch, verb):
    """Every call has a limit of time; the next process goes on."""
    cluster = stand_in.cluster
    stage = stage_of(stand_in.engine("soamapi"))
    name = ""

    def hang_now():
        monkeypatch.setattr("gateway.grids.symphony.side.ANSWER_S", 0.5)
        cluster.hangs = verb

    async def hang():
        nonlocal name
        if verb == "kill":
            name = stage.send(nap, 600.0)
            await wait_for(lambda: cluster.running)
            await stage_settled(stand_in)
        if verb == "send":  # into a session that is open: no other call has the short limit
            await stage.done(stage.send(nap, 0.0))
        hang_now()
        if verb == "kill":
            stage.engine.cancel([name], running=True)
        else:
            name = stage.send(nap, 0.0)

    with trio.fail_after(LIMIT_S):
        if verb == "connect":
            hang_now()
            with pytest.raises(GridFault, match=r"did not connect within 0\.5 s"):
                await stage.engine.run(stage._hear)
        else:
            words = {"create": "open"}.get(verb, verb)
            assert f"did not {words} within 0.5 s" in await run_until_it_fails(stage, hang)
        assert not any(sides()), "it was left hanging"
        cluster.hangs = ""
        monkeypatch.undo()
        if verb in ("create", "send"):
            assert isinstance(await stage.end(name), Lost)
        stage.told.clear()
        if verb == "kill":  # its client was lost, and so is its session, once that is seen there
            await wait_for(lambda: not cluster.open_sessions)
        async with stage.opened():
            if verb == "kill":
                assert isinstance(await stage.end(name), Lost)
            assert stage.values(await stage.done(stage.send(nap, 0.0))) == [0.0]


async def test_a_server_that_hangs_ends_the_run_and_what_runs_goes_on(stand_in, monkeypatch):
    stage = stage_of(stand_in.engine("rest", slots=1, ego_url="", consumer=""))
    name = ""

    async def hang():
        nonlocal name
        name = stage.send(nap, 1.0)
        await wait_for(lambda: stage.engine._parcels[name].sent.get(name))
        monkeypatch.setattr("gateway.grids.symphony.rest.REQUEST_S", 0.5)
        monkeypatch.setattr("gateway.grids.symphony.rest.FAULTS_MAX", 1)
        stand_in.rest.hangs = True

    with trio.fail_after(LIMIT_S):
        try:
            assert "TooSlowError" in await run_until_it_fails(stage, hang)
        finally:
            stand_in.rest.hangs = False
            monkeypatch.undo()
        begun = len(stand_in.cluster.started)
        assert stage.engine.holds(name)
        async with stage.opened():
            assert stage.values(await stage.done(name)) == [1.0]
        assert len(stand_in.cluster.started) == begun


async def test_a_fault_of_the_side_process_at_its_end_is_said(stand_in, monkeypatch):
    drain = SideInterface._drain

    async def drain_late(self, process):
        await wait_for(lambda: process.poll() is not None)
        await trio.testing.wait_all_tasks_blocked(0.05)  # who waits for its end has seen it
        await drain(self, process)

    monkeypatch.setattr(SideInterface, "_drain", drain_late)
    said = []
    stage = stage_of(stand_in.engine("soamapi", said.append))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            await stage.done(stage.send(double, 1))
            (session,) = stand_in.cluster.open_sessions
            del stand_in.cluster.sessions[session]
    assert any("(code 2)" in line and f"session {session} can't be closed" in line for line in said)


@pytest.mark.parametrize("way", WAYS)
async def test_a_service_that_dies_again_and_again_breaks_its_task(stand_in, way):
    """Symphony tries it once more by itself; then the end of the task is ours to report."""
    stage = stage_of(stand_in.engine(way))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            await stage.done(stage.send(double, 1))
            name = stage.send(nap, 600.0)
            for tries in (1, 2):
                await wait_for(
                    lambda n=tries: [n for t in stand_in.cluster.running if t.tries == n]
                )
                stand_in.cluster.kill_services()
            end = await stage.end(name)
            assert isinstance(end, Broken)
            assert "the service ended" in end.why


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_sent_counts_as_begun_and_what_waits_does_not(stand_in, way):
    stage = stage_of(stand_in.engine(way))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            first = stage.send(nap, 600.0)
            stage.engine.cancel([first], running=False)
            assert isinstance(await stage.end(first), Cancelled), "its session is being opened"
            second = stage.send(nap, 600.0)
            await wait_for(lambda: stand_in.cluster.running)
            stage.engine.cancel([second], running=False)
            assert Begun(second) in stage.told
            stage.engine.cancel([second], running=True)
            assert isinstance(await stage.end(second), Cancelled)


@pytest.mark.parametrize("way", WAYS)
async def test_slots_follow_ego(stand_in, way):
    stage = stage_of(stand_in.engine(way))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            assert Room(1) in stage.told
            stand_in.cluster.slots = 3
            await stage.until(lambda: Room(3) in stage.told)


def journal(stand_in, way, *lines):
    """Write the leftovers of a former life."""
    file = stand_in.folder / f"home-{way}" / "sessions.jsonl"
    said = [{"application": "gridfed"}, *lines]
    file.write_text("\n".join(json.dumps(each) for each in said) + '\n{"sent": "1')
    return file


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("take_up_s", [60.0, 0.0])
async def test_what_a_former_life_has_left_empty_is_closed(stand_in, way, take_up_s):
    cluster = stand_in.cluster
    left = cluster.create("gridfed", {"name": "left"}, None)
    engine = stand_in.engine(way, take_up_s=take_up_s)
    tasks = [["1", "p-1", "job", 0, 1, "ab"]] if not take_up_s else []
    lines = [{"open": left}, {"sent": left, "tasks": tasks}, {"open": "99999"}]
    file = journal(stand_in, way, *lines)
    stage = stage_of(engine)
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            assert left not in cluster.open_sessions
    assert not any(isinstance(each, Found) for each in stage.told)
    assert [json.loads(line) for line in file.read_text().splitlines()][:1] == [
        {"application": "gridfed"}
    ]
    async with stage_of(stand_in.engine(way)).opened():
        assert len(file.read_text().splitlines()) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_what_was_in_a_session_that_is_gone_is_found_and_lost(stand_in, way):
    lines = [{"open": "99999"}, {"sent": "99999", "tasks": [["1", "p-1", "job", 3, 2, "ab"]]}]
    engine = stand_in.engine(way)
    journal(stand_in, way, *lines)
    stage = stage_of(engine)
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            assert stage.told[0] == Found("p-1", Label("job", 3, 2, "ab"))
            assert isinstance(await stage.end("p-1"), Lost)


@pytest.mark.parametrize("way", WAYS)
async def test_what_has_ended_meanwhile_is_told_and_run_once(stand_in, way):
    cluster = stand_in.cluster
    stage = stage_of(stand_in.engine(way, on_stop="detach"))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            await stage.done(stage.send(nap, 0.0))
            names = [stage.send(nap, 1.5), stage.send(nap, 0.1)]
            await wait_for(lambda: all(stage.engine._parcels[n].sent.get(n) for n in names))
        begun = len(cluster.started)
        (session,) = cluster.open_sessions
        await wait_for(lambda: len(cluster.sessions[session].given) == 3)
        stage.engine = stand_in.engine(way)
        stage.told.clear()
        stage.forget_functions()
        async with stage.opened():
            assert stage.values(await stage.done(names[0])) == [1.5]
            assert stage.values(await stage.done(names[1])) == [0.1]
            await wait_for(lambda: session not in cluster.open_sessions)
    assert len(cluster.started) <= begun + 1


@pytest.mark.parametrize(
    ("way", "more", "text"),
    [
        ("soamapi", {"application": "other"}, "there is no application other"),
        ("rest", {"url": "https://localhost:9"}, "/auth/login"),
        ("rest", {"ca_file": "/nowhere.pem"}, "ca_file /nowhere.pem"),
        ("rest", {"ca_file": ""}, "certificate verify failed"),
        ("soamapi", {"interpreter": "/nowhere/python"}, "interpreter /nowhere/python"),
        ("soamapi", {"interpreter": "/bin/false"}, "the process of soamapi ended"),
        ("soamapi", {"interpreter": sys.executable}, "a minor version with a library"),
        ("rest", {"login_file": "/nowhere"}, "login_file /nowhere: No such file"),
    ],
)
async def test_what_can_not_be_reached_is_said(stand_in, way, more, text):
    engine = stand_in.engine(way, **more)
    with trio.fail_after(LIMIT_S), pytest.raises(GridFault) as caught:
        await engine.run(lambda news: None)
    assert text in str(caught.value)


@pytest.mark.parametrize("way", WAYS)
async def test_a_wrong_password_is_said_and_never_shown(stand_in, way, tmp_path):
    login = tmp_path / "login"
    login.write_text("Guest:s3cretword")
    with trio.fail_after(LIMIT_S), pytest.raises(GridFault) as caught:
        await stand_in.engine(way, login_file=str(login)).check()
    assert "password" in repr(caught.value)
    assert "s3cretword" not in repr(caught.value)


async def test_credentials_are_in_no_list_of_processes(stand_in, tmp_path):
    stand_in.cluster.users["ann"] = "s3cretword"
    login = tmp_path / "login"
    login.write_text("ann:s3cretword")
    stage = stage_of(stand_in.engine("soamapi", login_file=str(login)))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    assert "s3cretword" not in " ".join(child.cmdline())
                    assert "s3cretword" not in str(child.environ())


async def test_a_token_that_has_ended_is_asked_for_anew_and_faults_are_waited_out(stand_in):
    stage = stage_of(stand_in.engine("rest", slots=1, ego_url="", consumer=""))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            await stage.done(stage.send(double, 1))
            stand_in.rest.forget_tokens()
            assert stage.values(await stage.done(stage.send(double, 2))) == [4]
            name = stage.send(nap, 0.5)
            await wait_for(lambda: stand_in.cluster.running)
            stand_in.rest.faults += [503, 503]
            assert stage.values(await stage.done(name)) == [0.5]


async def test_results_come_page_by_page(stand_in, monkeypatch):
    monkeypatch.setattr("gateway.grids.symphony.rest.RESULTS_MAX", 2)
    stage = stage_of(stand_in.engine("rest"))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            names = [stage.send(double, n) for n in range(9)]
            assert [stage.values(await stage.done(name)) for name in names] == [
                [2 * n] for n in range(9)
            ]


async def test_a_task_that_is_not_taken_is_lost(stand_in):
    said = []
    stage = stage_of(stand_in.engine("rest", said.append))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            stand_in.rest.refuses = 1
            names = [stage.send(double, 1), stage.send(double, 2)]
            ends = [await stage.end(name) for name in names]
            assert [type(end) for end in ends] == [Lost, Done]
            assert any("no room" in line for line in said)


@pytest.mark.parametrize("way", WAYS)
async def test_priority_and_names_reach_symphony(stand_in, way):
    stage = stage_of(stand_in.engine(way, priority=77))
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            await stage.done(stage.send(double, 1))
            (name,) = stand_in.cluster.open_sessions
            values = stand_in.cluster.sessions[name].values
            assert (values["priority"], values["name"]) == (77, "gridfed mark")
            assert values["type"] == "gridfed"


async def test_the_package_runs_calls_on_a_host_that_has_nothing_else_of_ours(tmp_path):
    """As Symphony does: unpacked somewhere, started by its script."""
    (tmp_path / "package").mkdir()
    with tarfile.open(fileobj=BytesIO(build_package())) as tar:
        unpack(tar, tmp_path / "package")
    made = StandIn(tmp_path, 1, service=tmp_path / "package" / "service.py", library="")
    try:
        stage = stage_of(made.engine("soamapi"))
        with trio.fail_after(LIMIT_S):
            async with stage.opened():
                assert stage.values(await stage.done(stage.send(double, 4))) == [8]
                end = await stage.done(stage.send(leave, 3))
                assert end.failures[0][1] == "crash"
                end = await stage.done(stage.send(where, None))
                assert stage.values(end)[0].startswith(str(tmp_path / "package" / "lib"))
    finally:
        made.close()


def where(_):
    import gateway

    return gateway.__file__


async def test_a_session_that_can_not_be_closed_is_closed_by_the_next_life(stand_in, monkeypatch):
    monkeypatch.setattr("gateway.grids.symphony.engine.IDLE_S", 0.05)
    file = stand_in.folder / "home-rest" / "sessions.jsonl"
    engine = stand_in.engine("rest", slots=1, ego_url="", consumer="")
    close, closing = engine._way.close, []

    async def fails(session):
        closing.append(session)
        raise GridFault(FailureClass.AGAIN, "not now")

    stage = stage_of(engine)
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            engine._way.close = fails
            await stage.done(stage.send(double, 1))
            await wait_for(lambda: closing)
            await stage.done(stage.send(nap, 0.0))
            assert f'"closed": "{closing[0]}"' not in file.read_text()
            engine._way.close = close
        async with stage_of(stand_in.engine("rest", slots=1)).opened():
            assert closing[0] not in stand_in.cluster.open_sessions
