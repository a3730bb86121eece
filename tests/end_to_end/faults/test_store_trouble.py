"""A full disk under the store, and clients that do not read: no data is lost, no user is harmed."""

import os
import select
import sys
import time

import pytest
from support.processes import wait_until

from federation import Client
from federation.errors import JobRefused
from federation.messages import messages
from federation.messages.messages import Hello
from federation.payload import seal_call, seal_function
from federation.sessions.handshake import Dialogue, Opened, SharedSecret
from federation.sessions.nng import NngLink
from gateway.config.limits import ListenerLimits

pytestmark = pytest.mark.real


def square(x):
    return x * x


def slow_and_large(_):
    time.sleep(0.005)
    return bytes(20_000)


def limit_disk(inner, pages):
    """Let the store's file grow to so many pages, no further: SQLite then says the disk is full."""
    writer = inner.site.store._writer
    with writer._using:
        connection = writer._connection.connection.dbapi_connection
        connection.execute(f"PRAGMA max_page_count={pages}").close()


def test_a_full_disk_holds_results_back_and_loses_none(make_inner):
    inner = make_inner(1)
    with Client(inner.address) as client:
        assert client.submit(square, 2).result(timeout=300) == 4
        limit_disk(inner, 1)  # SQLite takes that for no more than there are now
        # Records enough that they can't fit into what the database has left to itself.
        futures = [client.submit(square, x) for x in range(200)]
        while not client.ask("status")["trouble"]:
            futures += [client.submit(square, x) for x in range(200)]
        assert "full" in client.ask("status")["trouble"]
        another = client.options(name="another").submit(square, 1)
        limit_disk(inner, 1 << 30)
        assert another.result(timeout=300) == 1
        values = [future.result(timeout=300) for future in futures]
        assert values == [x * x for x in range(200)] * (len(futures) // 200)
        wait_until(lambda: not client.ask("status")["trouble"], "the end of the trouble")
        assert client.options(name="later").submit(square, 3).result(timeout=300) == 9


def test_a_disk_that_stays_full_refuses_jobs(make_inner):
    inner = make_inner(1, rules=ListenerLimits(store_wait_s=0.0))
    with Client(inner.address) as client:
        limit_disk(inner, 1)
        futures = []
        while not client.ask("status")["trouble"]:
            futures += [client.submit(square, x) for x in range(200)]
        with pytest.raises(JobRefused, match="full"):
            client.options(name="another").submit(square, 1).result(timeout=300)
        limit_disk(inner, 1 << 30)
        values = [future.result(timeout=300) for future in futures]
        assert values == [x * x for x in range(200)] * (len(futures) // 200)


def test_a_client_that_does_not_read_holds_up_only_itself(make_site):
    config = "[limits]\nunread_bytes = 65536\nheartbeat_s = 30.0\n"
    site = make_site(1, config=config)
    link = NngLink(site.address, lambda: None)
    wait_until(lambda: link.is_up, "the pipe")
    dialogue = Dialogue(
        hello=Hello([], "client", "deaf", "deaf", b"", "", 0, {}),
        credentials=SharedSecret(""),
        random_bytes=os.urandom,
    )
    dialogue.connected(0.0)
    opened = False
    while not opened:
        dialogue.flush(link.send, 0.0)
        select.select([link.fileno()], [], [], 0.1)
        for frame in link.receive():
            opened = any(isinstance(m, Opened) for m in dialogue.receive(frame, 0.0)) or opened
    function = seal_function(slow_and_large)
    dialogue.post(messages.PutFunction(function.digest, function.body))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    job = ("deaf-job", "deaf", function.digest, False, "p", 0.0, {}, None, 0, None, "")
    dialogue.post(messages.OpenJob(*job, python, False, False, {}))
    dialogue.post(messages.Tasks("deaf-job", 0, [seal_call((x,), {}) for x in range(2000)]))
    dialogue.flush(link.send, 0.0)
    try:
        with site.client() as client:
            # From here on it reads nothing. Its work stops; that of others goes on.
            def held_back():
                # There is none yet while its opening is on the way.
                return any(
                    job["in_flight"] == 0 and job["waiting"] > 0 and job["done"] > 0
                    for job in client.jobs()
                    if job["id"] == "deaf-job"
                )

            wait_until(held_back, "the halt of the deaf client's job")
            assert sum(client.map(square, range(1000))) == sum(x * x for x in range(1000))
    finally:
        link.close()
