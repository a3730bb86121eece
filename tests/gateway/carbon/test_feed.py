"""A source on the net, against a real server of this process, and all that can go wrong."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trio

from federation.messages.adverts import Outlook
from gateway.carbon.asking import BODY_BYTES_MAX, RETRY_S
from gateway.carbon.feed import Feed
from gateway.carbon.meters import Meters
from gateway.config.carbon import ForecastConfig, HttpConfig
from gateway.config.site import PoolConfig, load
from policies.costs.carbon import Intensity

pytestmark = pytest.mark.real

NOW_S = 1_795_341_600.0  # 2026-11-22T10:00Z
KEY = "hush-4f1c"


class Source(ThreadingHTTPServer):
    """Answers as it is told: a status, headers, a body; or not before it is released."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.asked_for = [], []
        self.released = threading.Event()
        self.answer = (200, {}, b'{"g": 91.44}')
        self.forecast = (200, {}, b"[]")
        self.is_slow = self.is_dripping = False

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/intensity?token=in-the-url"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        source = self.server
        source.asked.append(dict(self.headers))
        if source.is_slow:
            source.released.wait()
        is_forecast = self.path.startswith("/ahead")
        source.asked_for.append(self.path)
        status, headers, body = source.forecast if is_forecast else source.answer
        if "ETag" in headers and self.headers.get("If-None-Match") == headers["ETag"]:
            status, body = 304, b""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            if source.is_dripping:
                while not source.released.wait(0.02):
                    self.wfile.write(b" ")
            self.wfile.write(body)
        except OSError:
            return  # who asked has gone

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    source = Source()
    thread = threading.Thread(target=source.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield source
    finally:
        source.released.set()
        source.shutdown()
        thread.join()
        source.server_close()


@pytest.fixture
def source():
    with serving() as made:
        yield made


class Clock:
    def __init__(self):
        self.utc_s = NOW_S

    def __call__(self):
        return self.utc_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def said():
    return []


@pytest.fixture
def make(source, clock, said, tmp_path):
    """A feed of the source; its files on disk stay for the next."""

    def make_(key="", **changes):
        config = HttpConfig(**{"url": source.url, "value": ("g",), **changes})
        return Feed(config, key, tmp_path / "carbon", clock, said.append)

    return make_


async def ask(feed):
    async with feed.client() as client:
        await feed.renew(client)


def known(feed, clock):
    found = feed.at(clock())
    return found and (found.mg_per_kwh, found.source.removeprefix("http 127.0.0.1 as of "))


async def test_what_is_answered_is_known_with_its_time(make, clock, said):
    feed = make()
    assert feed.at(NOW_S) is None
    assert feed.wait_s(NOW_S) == 0
    await ask(feed)
    assert feed.at(NOW_S) == Intensity(91_440, "http 127.0.0.1 as of 2026-11-22T10:00Z")
    assert feed.wait_s(NOW_S) == 900
    assert said == []


async def test_it_grows_old_and_is_told_so_and_is_then_forgotten(make, clock):
    feed = make()
    await ask(feed)
    clock.utc_s += 7_200
    assert known(feed, clock) == (91_440, "2026-11-22T10:00Z")
    clock.utc_s += 1_800
    assert known(feed, clock) == (91_440, "2026-11-22T10:00Z, 2 h 30 min old")
    clock.utc_s += 77_400
    assert known(feed, clock) == (91_440, "2026-11-22T10:00Z, 1 d old")
    clock.utc_s += 1
    assert known(feed, clock) is None


async def test_a_gateway_that_starts_again_need_not_ask(make, clock, source):
    await ask(make())
    clock.utc_s += 300
    again = make()
    assert known(again, clock) == (91_440, "2026-11-22T10:00Z")
    assert again.wait_s(clock()) == 600
    assert len(source.asked) == 1
    # Of another path in the same answer nothing is known.
    assert make(value=("other",)).at(clock()) is None


async def test_what_has_not_changed_is_not_sent_again(make, clock, source):
    source.answer = (200, {"ETag": '"v1"'}, b'{"g": 91.44, "t": "2026-11-22T09:30Z"}')
    await ask(make())
    clock.utc_s += 3_600
    feed = make()
    await ask(feed)
    assert [each.get("If-None-Match") for each in source.asked] == [None, '"v1"']
    assert known(feed, clock) == (91_440, "2026-11-22T11:00Z")  # it stands by it
    dated = make(time="t")
    for _ in range(2):
        clock.utc_s += 60
        await ask(dated)
    assert known(dated, clock) == (91_440, "2026-11-22T09:30Z")
    assert dated.wait_s(clock()) == 900
    source.answer = (200, {"ETag": '"v2"'}, b'{"g": 80, "t": "2026-11-22T11:00Z"}')
    await ask(dated)
    assert known(dated, clock) == (80_000, "2026-11-22T11:00Z")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((500, {}, b"oops"), "HTTP status 500"),
        ((404, {}, b""), "HTTP status 404"),
        ((401, {}, b""), "HTTP status 401"),
        ((304, {}, b""), "HTTP status 304"),  # of what we never had
        ((204, {}, b""), "HTTP status 204"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "HTTP status 302"),
        ((200, {}, b"<html>"), "it is not JSON"),
        ((200, {}, b'{"g": -1}'), "invalid intensity"),
        ((200, {}, b'{"g": NaN}'), "it is not JSON"),
        ((200, {}, b" " * (1 << 24)), "its response has more than 262,144 bytes"),
        ((200, {}, b" " * (BODY_BYTES_MAX + 1)), "its response has more than 262,144 bytes"),
        ((200, {"Content-Encoding": "gzip"}, b"\x1f\x8b"), "its response is compressed"),
        ((200, {"Content-Length": "100"}, b'{"g": 1}'), "RemoteProtocolError"),
        ((200, {"Content-Length": "x"}, b'{"g": 1}'), "RemoteProtocolError"),
    ],
)
async def test_what_goes_wrong_is_told_once_and_the_last_is_kept(
    make, clock, source, said, answer, why
):
    feed, good = make(), source.answer
    source.answer = answer
    for _ in range(2):
        await ask(feed)
    assert known(feed, clock) is None
    assert len(said) == 1
    assert said[0].startswith(f"carbon: 127.0.0.1: {why}")
    assert said[0].endswith("using the static value")
    source.answer = good
    await ask(feed)
    assert said[1:] == ["carbon: 127.0.0.1 is available again"]
    source.answer = answer
    clock.utc_s += 10_800
    await ask(feed)
    if answer[0] != 304:
        assert known(feed, clock) == (91_440, "2026-11-22T10:00Z, 3 h old")
        assert "91.44 g/kWh, http 127.0.0.1 as of 2026-11-22T10:00Z, 3 h old" in said[-1]
    assert "in-the-url" not in "".join(said)


@pytest.mark.parametrize("how", ["is_slow", "is_dripping"])
async def test_one_who_takes_his_time_is_not_waited_for(make, clock, source, said, how):
    setattr(source, how, True)
    source.answer = (200, {"Content-Length": "100000"}, b'{"g": 1}')
    feed = make(timeout_s=1.0)
    with trio.fail_after(200):
        await ask(feed)
    assert said == ["carbon: 127.0.0.1: timed out after 1 s; using the static value"]
    assert source.asked
    setattr(source, how, False)
    source.answer = (200, {}, b'{"g": 1}')
    feed = make(timeout_s=20)
    await ask(feed)
    assert known(feed, clock) == (1_000, "2026-11-22T10:00Z")


# --- hours to come -------------------------------------------------------------------------------


@pytest.fixture
def foreseeing(make, source):
    """A feed that asks for hours to come as well: 10:00 to 13:00, and nothing of 14:00."""
    steps = [(10, 90), (11, 80), (12, 70.06), (13, 60), (15, 50)]
    entries = [{"g": g, "t": f"2026-11-22T{hour}:00Z"} for hour, g in steps]
    source.forecast = (200, {"ETag": '"f1"'}, json.dumps(entries).encode())
    url = source.url.replace("/intensity?", "/ahead/{now}?")
    return lambda **changes: make(forecast=ForecastConfig(url, ("g",), "t"), **changes)


async def test_hours_to_come_are_asked_for_from_now_on(foreseeing, source, clock, said):
    feed = foreseeing()
    assert feed.ahead(NOW_S) is None
    await ask(feed)
    assert feed.ahead(NOW_S) == Outlook(NOW_S + 3_600, 3_600.0, (800, 701, 600))
    assert "/ahead/2026-11-22T10:00Z?token=in-the-url" in source.asked_for
    clock.utc_s += 3_600
    assert feed.ahead(clock()) == Outlook(NOW_S + 7_200, 3_600.0, (701, 600))
    await ask(feed)
    assert source.asked[-1]["If-None-Match"] == '"f1"'
    clock.utc_s += 86_400  # nothing of it is ahead any more
    assert feed.ahead(clock()) is None
    assert said == []


async def test_what_was_foreseen_is_known_after_a_restart_and_for_a_day(foreseeing, clock, source):
    await ask(foreseeing(keep_s=7_200.0, fresh_s=60.0))
    again = foreseeing(keep_s=7_200.0, fresh_s=60.0)
    assert again.ahead(NOW_S + 60) == Outlook(NOW_S + 3_600, 3_600.0, (800, 701, 600))
    assert again.ahead(NOW_S + 7_200) is not None
    assert again.ahead(NOW_S + 7_201) is None


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"steps": 3, "checked_s": 1}',
        '{"steps": [[1, 1], [1, 1]], "checked_s": 1}',
        '{"steps": [[2, 1], [1, 1]], "checked_s": 1}',
        '{"steps": [[1, -1]], "checked_s": 1}',
        '{"steps": [[1, 1.5]], "checked_s": 1}',
        '{"steps": [[1e99, 1]], "checked_s": 1}',
        '{"steps": [["x", 1]], "checked_s": 1}',
        '{"steps": [[1]], "checked_s": 1}',
        '{"steps": [[1, 1]], "checked_s": 9e99}',
        '{"steps": [[1, 1]], "checked_s": 1, "etag": "a\\r\\nb"}',
    ],
)
async def test_a_forecast_that_was_spoilt_on_disk_is_not_believed(foreseeing, tmp_path, text):
    await ask(foreseeing())
    for path in (tmp_path / "carbon").iterdir():
        path.write_text(text)
    again = foreseeing()
    assert again.ahead(NOW_S) is None
    assert again.at(NOW_S) is None


async def test_the_one_is_known_though_the_other_fails(foreseeing, source, said, clock):
    source.forecast = (500, {}, b"")
    feed = foreseeing()
    await ask(feed)
    assert known(feed, clock) == (91_440, "2026-11-22T10:00Z")
    assert feed.ahead(NOW_S) is None
    assert said == ["carbon: 127.0.0.1: HTTP status 500; using its last forecast, if any"]


async def test_nobody_there(make, clock, said):
    feed = make(url="http://127.0.0.1:1/")
    await ask(feed)
    assert said[0].startswith("carbon: 127.0.0.1: ConnectError")


async def test_failures_are_tried_again_soon_then_ever_more_seldom(make, clock, source):
    feed = make()
    source.answer = (500, {}, b"")
    waits = []
    for _ in range(8):
        await ask(feed)
        waits.append(feed.wait_s(clock()))
    assert waits == [RETRY_S, 60, 120, 240, 480, 900, 900, 900]
    clock.utc_s -= 86_400  # a clock that is set back does not put it off for a day
    assert feed.wait_s(clock()) == 900


async def test_the_key_goes_to_the_source_and_nowhere_else(make, clock, source, said, tmp_path):
    feed = make(key=KEY, key_header="auth-token", key_env="K")
    await ask(feed)
    assert source.asked[0]["auth-token"] == KEY
    source.answer = (401, {"WWW-Authenticate": KEY}, KEY.encode())
    await ask(feed)
    kept = "".join(path.read_text() for path in (tmp_path / "carbon").iterdir())
    for text in (kept, "".join(said), feed.at(clock()).source, repr(feed)):
        assert KEY not in text
        assert "in-the-url" not in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        "[" * 4_000,
        '{"mg_per_kwh": -1, "as_of_s": 1, "checked_s": 1}',
        '{"mg_per_kwh": 5000001, "as_of_s": 1, "checked_s": 1}',
        '{"mg_per_kwh": 1.5, "as_of_s": 1, "checked_s": 1}',
        '{"mg_per_kwh": 1, "as_of_s": "x", "checked_s": 1}',
        '{"mg_per_kwh": 1, "as_of_s": NaN, "checked_s": 1}',
        '{"mg_per_kwh": 1, "as_of_s": 9e99, "checked_s": 1}',
        '{"mg_per_kwh": 1, "as_of_s": 1, "checked_s": 9e99}',
        '{"mg_per_kwh": 1, "as_of_s": 1, "checked_s": 1, "etag": "a\\r\\nb"}',
        '{"mg_per_kwh": 1, "as_of_s": 1, "checked_s": 1, "more": 1}',
    ],
)
async def test_a_cache_that_was_spoilt_is_not_believed(make, tmp_path, text):
    await ask(make())
    (path,) = (tmp_path / "carbon").iterdir()
    path.write_text(text)
    assert make().at(NOW_S) is None


async def test_a_cache_that_can_not_be_written_is_told(make, clock, said, tmp_path):
    (tmp_path / "carbon").write_text("a file")
    feed = make()
    await ask(feed)
    assert known(feed, clock) == (91_440, "2026-11-22T10:00Z")
    assert said[0].startswith("carbon: the response of 127.0.0.1 could not be stored: ")


async def test_meters_tell_the_broker_of_changes(source, clock, said, tmp_path):
    text = f"""
[[pool]]
name = "cpu"
[pool.carbon]
max_watts = 10
g_per_kwh = 400
http = {{ url = "{source.url}", value = "g", every_s = 0.1 }}
[[pool]]
name = "gpu"
[pool.carbon]
http = {{ url = "{source.url}", value = "g", every_s = 0.1 }}
[[pool]]
name = "plain"
carbon_g_per_kwh = 5
"""
    path = tmp_path / "site.toml"
    path.write_text(text)
    pools = load(str(path)).pools
    meters = Meters(pools, tmp_path / "carbon", clock, said.append)
    assert meters.news() == []  # the static factors are known without it
    heard = []
    changed = trio.Event()

    def hear(event):
        nonlocal changed
        heard.append(event)
        if event.pool == "gpu":
            changed.set()
            changed = trio.Event()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(meters.run, hear)
        with trio.fail_after(200):
            await changed.wait()
            assert [each.pool for each in heard] == ["cpu", "gpu"]
            assert heard[0].emissions.intensity.mg_per_kwh == 91_440
            assert heard[0].emissions.machine == pools[0].emissions.machine
            assert heard[1].emissions.machine is None
            assert len(source.asked) == 1  # one for both
            source.answer = (200, {}, b'{"g": 80}')
            clock.utc_s += 1
            while heard[-1].emissions.intensity.mg_per_kwh != 80_000:
                await changed.wait()
            source.answer = (500, {}, b"")
            clock.utc_s += 86_401  # it is silent for a day: the factor counts
            while heard[-1].emissions.intensity is not None:
                await changed.wait()
        nursery.cancel_scope.cancel()
    assert heard[-2].emissions.intensity == Intensity(400_000, "static")


def test_a_pool_without_a_source_that_moves_has_no_news(tmp_path, clock, said):
    meters = Meters((PoolConfig("p", carbon_g_per_kwh=4.0),), tmp_path, clock, said.append)
    assert meters.news() == []
    trio.run(meters.run, said.append)  # ends at once
    assert said == []
    assert json.dumps(list(map(str, tmp_path.iterdir()))) == "[]"
