"""A member that lies about others in gossip: their work goes on, and none is taken for gone."""

import secrets

import pytest
import trio
from support.members import MemberSite, federate
from support.processes import wait_until

from federation.membership.gossip import (
    INCARNATION_MAX,
    Gossip,
    MemberState,
    MemberUpdate,
    News,
    to_plain,
)
from federation.membership.membership import BOOT_SHIFT
from federation.messages.messages import MESSAGES, GossipMessage
from federation.messages.wire import pack
from federation.sessions.handshake import Dialogue, Opened
from gateway.peering.directory import SiteDirectory
from gateway.trust import introduction
from gateway.trust.identity_store import Registry
from gateway.trust.introduction import SiteCredentials
from gateway.trust.keys import hold

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture
def sites(tmp_path):
    """London and Paris, which work for each other, and Berlin, which lies."""
    members = []
    try:
        for name, price in (("london", "4 USD"), ("paris", "0.04 USD"), ("berlin", "9 USD")):
            members.append(MemberSite(tmp_path, name, 1, price))
        federate(*members)
        yield members
    finally:
        for member in members:
            member.gateway.stop()


async def tell(registry, target, claims):
    """Send any update in gossip, with the keys of a member."""
    link = SiteDirectory(registry).dial(target, 0, lambda: None)
    dialogue = Dialogue(
        hello=introduction.hello(registry),
        credentials=SiteCredentials(registry, target),
        random_bytes=secrets.token_bytes,
    )
    try:
        with trio.fail_after(200):
            while not link.is_up:
                assert not link.is_lost
                await trio.sleep(0.01)
            dialogue.connected(trio.current_time())
            is_open = False
            while not is_open or not dialogue.session.is_idle:
                dialogue.flush(link.send, trio.current_time())
                await trio.sleep(0.01)
                for frame in link.receive():
                    for message in dialogue.receive(frame, trio.current_time()):
                        if isinstance(message, Opened):
                            is_open = True
                            for claim in claims:
                                gossip = pack(to_plain(Gossip(News((claim,)))))
                                dialogue.post_encoded(MESSAGES.encode(GossipMessage(gossip)))
    finally:
        link.close()


def test_a_member_that_lies_has_nobody_taken_for_gone(sites):
    london, paris, berlin = sites
    berlin.gateway.stop()
    folder = next(berlin.folder.glob("**/current.pem")).parent
    with hold(folder):
        registry = Registry(folder)
        registry.begin_life()
        registry.write_tls()
        for there, other in (("london", "paris"), ("paris", "london")):
            incarnations = [registry.boot << BOOT_SHIFT, INCARNATION_MAX]
            lies = [
                MemberUpdate(other, state, each) for each in incarnations for state in MemberState
            ]
            trio.run(tell, registry, there, lies)
    for here, there in ((london, paris), (paris, london)):
        with here.client() as client:
            view = client.options(sites=[there.name])
            assert list(view.map(abs, range(4), timeout=200)) == list(range(4))
        wait_until(
            lambda here=here, there=there: (
                {row["site"]: row["state"] for row in here.ask("sites")}[there.name] == "up"
            ),
            f"{there.name} is up at {here.name}",
        )
        log = here.gateway.text()
        assert f"site {there.name} is dead" not in log
        assert f"site {there.name} is left" not in log
