"""A host that will be taken away: its tasks know, tasks not begun go back, and it leaves."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cloudpickle
import pytest

from federation import deadline
from federation.messages.messages import Bye, Drain
from gateway.worker.interruption import RISK, Interruption, read_action
from gateway.worker.metadata import Metadata, MetadataError

pytestmark = pytest.mark.real

# The functions of these tests are not installed where the slots look.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

AT_S = 1_795_381_200.0  # 2026-11-22 21:00 UTC


class Service(BaseHTTPRequestHandler):
    """Metadata with tokens; `shown` is its content."""

    def log_message(self, *_args):
        pass

    def do_PUT(self):
        self.server.tokens += 1
        self.say(200, self.server.garbled or f"t{self.server.tokens}")

    def do_GET(self):
        if self.headers.get("X-aws-ec2-metadata-token") != f"t{self.server.tokens}":
            self.say(401, "")
            return
        found = self.server.shown.get(self.path.removeprefix("/latest/meta-data/"))
        self.say(404 if found is None else 200, found or "")

    def say(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def service():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.daemon_threads = True
    server.tokens, server.shown, server.garbled = 0, {}, ""
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("token", ["a\r\nX-Forged: b", "\u00e4"])
def test_a_token_that_is_none_is_a_fault_of_the_service(service, token):
    service.garbled = token
    with pytest.raises(MetadataError, match="returned an invalid token"):
        Metadata(service.url).get("instance-id")


def act(what, *args):
    return what(*args)


def wait_for(mark, go):
    mark.touch()
    while not go.exists():
        time.sleep(0.005)
    return "done"


def go_on(mark, seen):
    """Work for ever; note when a deadline is known."""
    mark.touch()
    while True:
        if deadline() is not None and not seen.exists():
            seen.write_text(str(deadline()))
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("text", "ends_s"),
    [
        ('{"action": "terminate", "time": "2026-11-22T21:02:00Z"}', AT_S + 120),
        ('{"action": "stop", "time": "2026-11-22T21:02:00+00:00"}', AT_S + 120),
        ('{"action": "hibernate", "time": "2026-11-22T20:59:00Z"}', AT_S - 60),
        ('{"action": 7, "time": 9}', AT_S),  # it can't be read: the end is now
        ("[]", AT_S),
        ("not JSON", AT_S),
        ("[" * 60_000, AT_S),
    ],
)
def test_when_the_end_is(text, ends_s):
    assert read_action(text, AT_S).ends_at_s == ends_s


@pytest.mark.parametrize(
    ("left_s", "stop_in_s"), [(120.0, 115.0), (20.0, 15.0), (8.0, 6.0), (0.0, 0.0), (-3.0, 0.0)]
)
def test_time_is_kept_for_the_goodbye(left_s, stop_in_s):
    assert Interruption("", AT_S + left_s).stop_in_s(AT_S) == stop_in_s
    assert RISK.stop_in_s(AT_S) is None


def test_a_token_that_is_not_good_any_more_is_renewed(service):
    service.shown["instance-id"] = "i-1"
    metadata = Metadata(service.url)
    assert metadata.get("instance-id") == "i-1"
    service.tokens += 1  # as after its restart
    assert metadata.get("instance-id") == "i-1"
    assert metadata.get("spot/instance-action") is None
    with pytest.raises(MetadataError, match="placement: not found"):
        metadata.need("placement")


@pytest.mark.slow
def test_what_runs_is_told_stopped_in_time_and_the_worker_says_goodbye(
    gateway, start_agent, service, tmp_path
):
    agent = start_agent(gateway, 1, "--interruptions", service.url, "--interruptions-s", "0.05")
    worker, mark, seen = gateway.worker(), tmp_path / "mark", tmp_path / "seen"
    work = gateway.assign(worker, act, [(go_on, mark, seen), (abs, -1), (abs, -2)])
    gateway.wait_for(mark.exists)
    ends_s = time.time() + 3.0
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends_s))
    service.shown["spot/instance-action"] = json.dumps({"action": "terminate", "time": at})
    gateway.wait_for(lambda: worker.all(Bye))
    assert worker.all(Drain) == [Drain(True)]
    assert work.settled() == work.wait().settled()
    assert {kind for kind, *_ in work.failures().values()} == {"preempted"}
    assert work.returned == [[1, 3]]
    assert float(seen.read_text()) < ends_s
    gateway.wait_for(lambda: not agent.is_alive)
    assert agent.process.poll() == 0


@pytest.mark.slow
def test_at_a_risk_what_runs_may_end_and_nothing_else_begins(
    gateway, start_agent, service, tmp_path
):
    watched = ["--interruptions", service.url, "--interruptions-s", "0.05", "--heed-rebalance"]
    agent = start_agent(gateway, 1, *watched)
    worker, mark, go = gateway.worker(), tmp_path / "mark", tmp_path / "go"
    work = gateway.assign(worker, act, [(wait_for, mark, go), (abs, -1)])
    gateway.wait_for(mark.exists)
    service.shown["events/recommendations/rebalance"] = '{"noticeTime": "2026-11-22T21:00:00Z"}'
    gateway.wait_for(lambda: work.returned)
    go.touch()
    gateway.wait_for(lambda: worker.all(Bye))
    assert work.values() == {0: "done"}
    assert work.returned == [[1, 2]]
    gateway.wait_for(lambda: not agent.is_alive)
