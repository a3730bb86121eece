"""A SYMREST or EGO that lies: any answer becomes a fault in words, and never a crash."""

import json

import httpx2
import pytest
import trio

from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.symphony import rest
from gateway.grids.symphony.rest import EgoRoom, RestClient, RestInterface
from gateway.grids.symphony.settings import read
from gateway.grids.symphony.ways import ConnectionCut, Gone, SymphonyOutcome

LIMIT_S = 10.0
ODD = "\ud800"  # JSON can name it, and nothing can write it
DEEP = b"[" * 200_000
ANSWERS = [
    b"",
    b"null",
    b"[]",
    b"<html>",
    b"\xff",
    DEEP,
    b"9" * 5000,
    b'{"taskIds": null, "taskResults": 5, "consumers": {}, "sessionId": {}}',
    b'{"taskIds": [5], "taskResults": [null], "consumers": ["c"], "sessionId": ""}',
    b'{"taskIds": [{"taskId": []}], "taskResults": [{"taskOutput": [5]}], "sessionId": "a,b"}',
    b'{"sessionId": "\\ud800", "taskIds": [{"taskId": "\\ud800"}],'
    b' "taskResults": [{"taskId": "\\ud800", "errorMessage": "\\ud800"}]}',
    b'{"sessionId": "5", "errorMessage": "\\ud800", "csrftoken": "\\ud800"}',
]


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A server of one function, `answer`, from requests to responses."""
    (tmp_path / "login").write_text("user:s3cretword")

    class Server:
        table = {
            "way": "rest",
            "application": "a",
            "login_file": str(tmp_path / "login"),
            "url": "https://sym",
            "ego_url": "https://sym",
            "consumer": "/C",
        }

        def answer(self, request):
            raise NotImplementedError

        def settings(self, **more):
            return read({**self.table, **more})

        async def handle(self, request):
            if request.url.path.endswith("/auth/login"):
                return httpx2.Response(200, json={"csrftoken": "t"})
            return self.answer(request)

    made = Server()
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(made.handle))
    monkeypatch.setattr(RestClient, "_open", lambda _self: client)
    return made


@pytest.mark.parametrize("content", ANSWERS, ids=lambda each: repr(each[:50]))
async def test_whatever_is_answered_is_a_fault_or_an_answer(server, content):
    server.answer = lambda _request: httpx2.Response(200, content=content)
    said = []
    way = RestInterface(server.settings(), said.append)
    for ask in (
        lambda: way._rest.ask("GET", "/x"),
        lambda: way.send("5", [b"a", b"b"]),
        lambda: way._fetch("5", ["1"]),
        lambda: way.open("name", b""),
        EgoRoom(server.settings()),
        way.check,
    ):
        try:
            found = await ask()
        except GridFault as fault:
            found = str(fault)
        except AssertionError:
            found = ""  # a session is open: whoever listens to it needs a run
        assert "s3cretword" not in repr(found)
        if isinstance(found, list) and found and isinstance(found[0], SymphonyOutcome):
            (outcome,) = found
            assert not outcome.is_ok
            f"{outcome.task}{outcome.text}".encode()


@pytest.mark.parametrize(
    ("deserved", "slots"),
    [(7, 7), (7.9, 7), (10**30, 50_000), (-1, None), ("7", None), (True, None), (None, None)],
)
async def test_only_a_number_is_a_number_of_slots(server, deserved, slots):
    consumer = {"name": "/C", "deservedslots": deserved, "allocatedslots": 0}
    server.answer = lambda _request: httpx2.Response(200, json={"consumers": [consumer]})
    room = EgoRoom(server.settings())
    if slots is not None:
        assert await room() == slots
        return
    with pytest.raises(GridFault, match="EGO returned invalid slots"):
        await room()


async def test_an_endless_answer_is_hung_up_on(server, monkeypatch):
    monkeypatch.setattr(rest, "ANSWER_BYTES_MAX", 1000)
    taken = 0

    async def endless():
        nonlocal taken
        while True:
            taken += 100
            yield b" " * 100

    server.answer = lambda _request: httpx2.Response(200, content=endless())
    with trio.fail_after(LIMIT_S), pytest.raises(ConnectionCut, match="too large"):
        await RestInterface(server.settings(), print)._rest.ask("GET", "/x")
    assert taken == 1100


async def test_a_server_that_is_away_when_a_token_is_renewed_ends_nothing(
    server, monkeypatch, autojump_clock
):
    renewals = 0

    def answer(_request):
        nonlocal renewals
        renewals += 1
        return httpx2.Response(503)

    server.answer = answer
    client = RestInterface(server.settings(), print)._rest
    await client.log_on()
    monkeypatch.setattr(client, "log_on", lambda: client.ask("GET", "/auth/again"))
    with trio.move_on_after(2.5 * rest.RENEW_S) as scope:
        await client.keep_on()
    assert (scope.cancelled_caught, renewals) == (True, 4), "renewed twice, logged on twice"


@pytest.mark.parametrize(
    ("status", "kind", "blame"),
    [
        (302, ConnectionCut, FailureClass.AGAIN),
        (400, GridFault, FailureClass.NEVER),
        (401, ConnectionCut, FailureClass.NEVER),
        (404, GridFault, FailureClass.NEVER),
        (429, GridFault, FailureClass.AGAIN),
        (503, ConnectionCut, FailureClass.AGAIN),
    ],
)
async def test_whose_fault_a_status_is(server, status, kind, blame):
    there = {"Location": "https://elsewhere"}
    server.answer = lambda _request: httpx2.Response(status, headers=there)
    with pytest.raises(GridFault) as caught:
        await RestInterface(server.settings(), print)._rest.ask("GET", "/x")
    assert type(caught.value) is kind or issubclass(type(caught.value), ConnectionCut) is (
        kind is ConnectionCut
    )
    assert caught.value.failure_class is blame


async def test_who_speaks_for_a_server_that_starts_says_nothing_of_sessions(server):
    """Its servlet engine answers 404 in HTML: a session that were taken for gone would run on."""
    server.answer = lambda _request: httpx2.Response(404, text="<html>Context Root Not Found")
    with pytest.raises(ConnectionCut, match="404"):
        await RestInterface(server.settings(), print).close("5")


async def poll(server, monkeypatch, **more):
    """The messages about session 5 until its polls end, and the fault by which they ended."""
    monkeypatch.setattr(rest, "POLL_MAX_S", 0.01)
    way = RestInterface(server.settings(**more), print)
    heard, fault = [], None
    way._hear = heard.append
    with trio.fail_after(LIMIT_S):
        try:
            await way._poll("5", trio.CancelScope(), rest.deque())
        except GridFault as found:
            fault = found
    return heard, fault, way


async def test_a_session_is_not_gone_because_we_are_not_let_in(server, monkeypatch):
    """As when a password was changed: running work waits for a gateway with the new one."""
    server.answer = lambda _request: httpx2.Response(401)
    heard, fault, way = await poll(server, monkeypatch)
    assert not heard
    assert isinstance(fault, ConnectionCut)
    assert way._leaves


async def test_a_session_that_is_refused_for_long_is_gone_and_no_other_suffers(
    server, monkeypatch, autojump_clock
):
    """Else the connection would end for all of them again and again, and never for good."""
    server.answer = lambda _request: httpx2.Response(500, content=json.dumps({"no": "way"}))
    _, fault, way = await poll(server, monkeypatch, take_up_s=60.0)
    assert isinstance(fault, ConnectionCut)
    heard = []
    way._hear = heard.append
    await trio.sleep(61.0)
    await way._poll("5", trio.CancelScope(), rest.deque())
    ((gone,),) = [heard]
    assert isinstance(gone, Gone)
    assert gone.session == "5"


async def test_a_session_that_can_not_be_closed_keeps_no_other_open(server, autojump_clock):
    closed = []

    def answer(request):
        session = request.url.params["sessionId"]
        if request.method != "DELETE":
            return httpx2.Response(200, json={"taskResults": []})
        if session == "stuck":
            return httpx2.Response(503)
        closed.append(session)
        return httpx2.Response(200)

    server.answer = answer
    way = RestInterface(server.settings(), lambda _line: None)
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(way.run, lambda _heard: None, False)
            for session in ("stuck", "1", "2"):
                await way.reopen(session, [])
            nursery.cancel_scope.cancel()
    assert sorted(closed) == ["1", "2"]
