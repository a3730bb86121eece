"""What befalls a Symphony engine: by either way, over the stand-in."""

import json
import sys
import tarfile
from contextlib import suppress
from io import BytesIO

import cloudpickle
import psutil
import pytest
import trio
from symphony_support import WAYS, StandIn

from gateway.grids import engine_checks
from gateway.grids.contract import Blame, GridFault
from gateway.grids.delegating import Begun, Broken, Cancelled, Done, Lost, Room
from gateway.grids.engine_checks import Stage, double, leave, nap
from gateway.grids.symphony.package import build_package

cloudpickle.register_pickle_by_value(engine_checks)
cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.thorough  # half a minute, in all
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


async def lose_the_side(stage, stand_in):
    async with stage.opened():
        name = stage.send(nap, 600.0)
        await wait_for(lambda: stand_in.cluster.running)
        for each in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):  # another test's, that has just ended
                if any(part.endswith("soam/side.py") for part in each.cmdline()):
                    each.kill()
        assert isinstance(await stage.end(name), Lost)
        await trio.sleep_forever()


async def test_a_side_process_that_is_killed_ends_the_run_and_the_next_one_works(stand_in):
    stage = stage_of(stand_in.engine("soamapi"))
    with trio.fail_after(LIMIT_S):
        with pytest.raises(BaseExceptionGroup) as caught:
            await lose_the_side(stage, stand_in)
        assert "the process of soamapi ended" in repr(caught.value.exceptions)
        await wait_for(lambda: not stand_in.cluster.open_sessions)
        stage.told.clear()
        async with stage.opened():
            assert stage.values(await stage.done(stage.send(nap, 0.0))) == [0.0]


async def lose_the_connection(stage, stand_in):
    async with stage.opened():
        name = stage.send(nap, 600.0)
        await wait_for(lambda: stand_in.cluster.running)
        stand_in.cluster.cut()
        assert isinstance(await stage.end(name), Lost)
        stage.send(nap, 0.0)  # needs a session, and there is nobody to open it
        await trio.sleep_forever()


async def test_a_connection_that_is_lost_is_made_anew(stand_in):
    stage = stage_of(stand_in.engine("soamapi"))
    with trio.fail_after(LIMIT_S):
        with pytest.raises(BaseExceptionGroup) as caught:
            await lose_the_connection(stage, stand_in)
        assert "the connection is lost" in repr(caught.value.exceptions)
        stage.told.clear()
        async with stage.opened():
            assert stage.values(await stage.done(stage.send(nap, 0.0))) == [0.0]


@pytest.mark.parametrize("way", WAYS)
async def test_a_service_that_dies_again_and_again_breaks_its_task(stand_in, way):
    """Symphony tries it once more by itself; then it is ours to say what becomes of it."""
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


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_former_life_has_left_is_closed(stand_in, way):
    cluster = stand_in.cluster
    left = cluster.create("gridfed", {"name": "left"}, None)
    engine = stand_in.engine(way)
    file = stand_in.folder / f"home-{way}" / "sessions.json"
    file.write_text(json.dumps({"application": "gridfed", "sessions": [left, "99999"]}))
    stage = stage_of(engine)
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            assert left not in cluster.open_sessions
    assert json.loads(file.read_text())["sessions"] == []


@pytest.mark.parametrize(
    ("way", "more", "text"),
    [
        ("soamapi", {"application": "other"}, "there is no application other"),
        ("rest", {"url": "https://localhost:9"}, "/auth/login"),
        ("rest", {"ca_file": "/nowhere.pem"}, "ca_file /nowhere.pem"),
        ("rest", {"ca_file": ""}, "certificate verify failed"),
        ("soamapi", {"interpreter": "/nowhere/python"}, "interpreter /nowhere/python"),
        ("soamapi", {"interpreter": "/bin/false"}, "the process of soamapi ended"),
        ("soamapi", {"interpreter": sys.executable}, "a minor version that your release has"),
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
    assert "wrong name or password" in repr(caught.value)
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
        tar.extractall(tmp_path / "package", filter="data")
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
    file = stand_in.folder / "home-rest" / "sessions.json"
    engine = stand_in.engine("rest", slots=1, ego_url="", consumer="")
    close, closing = engine._way.close, []

    async def fails(session):
        closing.append(session)
        raise GridFault(Blame.AGAIN, "not now")

    stage = stage_of(engine)
    with trio.fail_after(LIMIT_S):
        async with stage.opened():
            engine._way.close = fails
            await stage.done(stage.send(double, 1))
            await wait_for(lambda: closing)
            await stage.done(stage.send(nap, 0.0))
            assert closing[0] in json.loads(file.read_text())["sessions"]
            engine._way.close = close
        async with stage_of(stand_in.engine("rest", slots=1)).opened():
            assert closing[0] not in stand_in.cluster.open_sessions
