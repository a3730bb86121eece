"""The object host refuses users whose token is revoked or has expired."""

import os
import time

import numpy as np
import pytest
from support.answers import answer
from support.members import MemberSite, run
from support.processes import wait_until

from federation import Client
from federation.errors import GridError
from federation.messages.objects import GetObject, HostOpen, ObjectHere, OpenHost
from federation.objects.manifests import read_digest
from federation.sessions.object_socket import BlockingObjectSocket

pytestmark = pytest.mark.real
WITHIN_S = 10.0  # ten times what it takes at most
NUMBERS = np.arange(100_000.0)


@pytest.fixture
def site(tmp_path):
    made = MemberSite(tmp_path, "london", slots=1, price="1 USD")
    yield made
    made.gateway.stop()


def token_of(site, user, *options):
    made = answer(run("token", "--user", user, *options, *site.where, "--json"))
    return made["token"]


class Reader:
    """A connection to the object host that a program of the user keeps to itself."""

    def __init__(self, client):
        self.where = client.ask("object_host", project="default")
        self.socket = self.dial()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def dial(self):
        made = BlockingObjectSocket(self.where["address"], 60.0)
        try:
            assert isinstance(made.ask(OpenHost(self.where["ticket"]))[0], HostOpen)
        except BaseException:
            made.close()
            raise
        return made

    def get(self, digest):
        return self.socket.ask(GetObject(1, "default", read_digest(digest)))

    def is_cut_off(self, digest):
        try:
            _, file = self.get(digest)
        except OSError:
            return True
        os.close(file)
        return False


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_connection_to_the_object_host_ends_with_its_token(site, how):
    token = token_of(site, "bob", *(("--expires", "8s") if how == "expired" else ()))
    other = token_of(site, "ann")
    with Client(site.address, token=other) as ann, Client(site.address, token=token) as bob:
        found = bob.put(NUMBERS)
        with Reader(bob) as reader, Reader(ann) as honest:
            here, file = reader.get(found.digest)
            assert isinstance(here, ObjectHere)
            kept = ann.put(NUMBERS * 2)
            if how == "revoked":
                run("tokens", "revoke", token, *site.where)
            began_s = time.monotonic()
            wait_until(lambda: reader.is_cut_off(found.digest), "the end of the connection")
            assert how == "expired" or time.monotonic() - began_s < WITHIN_S
            with pytest.raises(ConnectionError):  # nor by the ticket that it still has
                reader.dial()
            with pytest.raises(GridError):
                bob.ask("status")
            assert not honest.is_cut_off(kept.digest)
            # What was handed out can't be taken back.
            assert NUMBERS.tobytes() in os.pread(file, here.size, 0)
            os.close(file)
