"""The guarantees for users of links: order, once, and a LinkDown for all that is lost."""

import contextlib
import itertools

import pytest
import trio

from federation.errors import GatewayUnreachable
from federation.messages.messages import Answer, Ask, Hello
from federation.sessions.handshake import SharedSecret
from federation.sessions.memory import MemoryPort
from gateway.config.limits import ListenerLimits
from gateway.sessions.driving import TrioLinks
from gateway.sessions.links import LinkDown, LinkLimits, LinkSaid, LinkUp
from gateway.sessions.listener import PeerCameIn, PeerLeft, PeerSaid, SessionListener

pytestmark = pytest.mark.real

RULES = ListenerLimits(heartbeat_s=0.1, grace_s=0.6)


class Far:
    """The gateway of another site, in memory."""

    def __init__(self, rules=RULES, secret=""):
        self.port = MemoryPort()
        self.rules = rules
        self.secret = secret
        self.is_deaf = False
        self.news = []
        self.restart()

    def restart(self):
        """A new life: it knows nothing of the last."""
        self.listener = SessionListener(
            self.port, self.rules, credentials=SharedSecret(self.secret)
        )

    async def run(self):
        while True:
            await trio.sleep(0.002)
            now_s = trio.current_time()
            if self.is_deaf:
                continue
            self.news += self.listener.pipes_came(self.port.came(), now_s)
            for pipe, frame in self.port.receive():
                self.news += self.listener.receive(pipe, frame, now_s)
            self.news += self.listener.tick(now_s)
            self.listener.flush(now_s)
            self.listener.pipes_gone(self.port.gone(), now_s)

    def break_pipes(self):
        for peer in self.listener.peers.values():
            if peer.pipe is not None:
                self.port.drop(peer.pipe)

    @property
    def heard(self):
        return [each.message.request for each in self.news if isinstance(each, PeerSaid)]

    @property
    def left(self):
        return [each.reason for each in self.news if isinstance(each, PeerLeft)]


class Near:
    """Our side: links, and a directory of those far."""

    def __init__(self, fars, **limits):
        self.fars = fars
        self.forbidden = set()
        self.news = []
        self.dials = 0
        self.dialled = TrioLinks(self, LinkLimits(**limits), self.news.append)
        self.links = self.dialled.links

    def may_dial(self, site):
        return site in self.fars and site not in self.forbidden

    def hello(self):
        return Hello([], "client", "near", "near", b"", "", 0, {})

    def credentials(self, site):
        return SharedSecret("")

    def dial(self, site, attempt, on_change):
        self.dials += 1
        if self.fars[site] is None:
            raise GatewayUnreachable("no way")
        link = self.fars[site].port.dial()
        on_change()
        return link

    def ask(self, site, number, **kind):
        self.links.post(site, Ask(number, "status", {}), **kind)
        self.links.flush(trio.current_time())

    def of(self, kind):
        return [each for each in self.news if isinstance(each, kind)]


async def until(condition):
    with trio.fail_after(200):
        while not condition():  # noqa: ASYNC110 - it may be anything
            await trio.sleep(0.002)


@contextlib.asynccontextmanager
async def world(far_rules=RULES, secret="", **limits):
    far = Far(far_rules, secret)
    near = Near({"far": far}, **limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(far.run)
        await nursery.start(near.dialled.run)
        yield near, far
        nursery.cancel_scope.cancel()
    far.port.close()


async def test_what_is_posted_is_dialled_for_and_arrives_in_order():
    async with world() as (near, far):
        for number in range(1, 4):
            near.ask("far", number)
        await until(lambda: len(far.heard) == 3)
        assert far.heard == [1, 2, 3]
        assert near.news == [LinkUp("far", False)]


async def test_what_the_other_says_on_it_is_news():
    async with world() as (near, far):
        near.ask("far", 1)
        await until(lambda: far.heard)
        (peer,) = far.listener.peers.values()
        far.listener.post(peer, Answer(1, "", "", "yes"))
        await until(lambda: near.of(LinkSaid))
        assert near.of(LinkSaid) == [LinkSaid("far", Answer(1, "", "", "yes"))]


async def test_a_lost_pipe_loses_nothing():
    async with world(ListenerLimits(heartbeat_s=0.1, grace_s=20.0)) as (near, far):
        near.links.keep(["far"])
        for ups in range(1, 4):
            await until(lambda: len(near.of(LinkUp)) >= ups)  # noqa: B023 - awaited here
            for number in range(20 * ups - 19, 20 * ups + 1):
                near.ask("far", number)
            far.break_pipes()
        await until(lambda: len(far.heard) >= 60)
        assert far.heard == list(range(1, 61))
        assert near.of(LinkDown) == []
        assert [news.resumed for news in near.of(LinkUp)[:3]] == [False, True, True]


async def test_a_new_life_of_the_other_is_a_down_and_an_up():
    async with world() as (near, far):
        near.links.keep(["far"])
        await until(lambda: near.news)
        far.restart()
        far.port.drop(next(iter(far.port._links)))
        await until(lambda: len(near.of(LinkUp)) == 2)
        assert [type(each) for each in near.news] == [LinkUp, LinkDown, LinkUp]
        assert not near.of(LinkUp)[1].resumed


async def test_silence_beyond_the_grace_is_a_down_and_what_waits_is_dropped():
    async with world() as (near, far):
        near.links.keep(["far"])
        await until(lambda: near.news)
        far.is_deaf = True
        near.ask("far", 1)
        await until(lambda: near.of(LinkDown))
        far.restart()
        far.is_deaf = False
        await until(lambda: len(near.of(LinkUp)) == 2)
        near.ask("far", 2)
        await until(lambda: 2 in far.heard)


async def test_what_nobody_answers_for_is_given_up():
    async with world(give_up_s=0.3) as (near, far):
        far.is_deaf = True
        near.ask("far", 1)
        far.port.drop(1)
        near.fars["far"] = None
        await until(lambda: near.of(LinkDown))
        await until(lambda: near.links.sites == [])
        assert near.of(LinkUp) == []


async def test_a_site_that_is_kept_is_dialled_again_for_ever():
    async with world(give_up_s=0.2) as (near, far):
        near.fars["far"] = None
        near.links.keep(["far"])
        await until(lambda: near.of(LinkDown) and near.dials > 2)
        near.fars["far"] = far
        await until(lambda: near.of(LinkUp))
        assert len(near.of(LinkDown)) == 1


async def test_a_refusal_is_a_down_with_its_reason():
    async with world(secret="other") as (near, _far):
        near.ask("far", 1)
        await until(lambda: near.of(LinkDown))
        assert "secret" in near.of(LinkDown)[0].reason
        await until(lambda: near.links.sites == [])


async def test_what_nobody_needs_is_closed_with_a_goodbye():
    async with world(ListenerLimits(heartbeat_s=0.1, grace_s=20.0), idle_s=0.2) as (near, far):
        near.ask("far", 1)
        await until(lambda: near.of(LinkDown))
        await until(lambda: far.left)
        assert far.left == ["idle"]
        assert [each.is_idle for each in near.of(LinkDown)] == [True]
        near.ask("far", 2)
        await until(lambda: far.heard == [1, 2])


async def test_what_is_kept_is_not_closed_when_idle(autojump_clock):
    async with world(idle_s=0.05) as (near, far):
        near.links.keep(["far"])
        near.ask("far", 1)
        await until(lambda: far.heard)
        opened_s = trio.current_time()
        await until(lambda: trio.current_time() > opened_s + 1.0)
        assert near.of(LinkDown) == []


async def test_a_link_on_which_nobody_speaks_outlives_the_grace(autojump_clock):
    async with world() as (near, _far):
        near.links.keep(["far"])
        await until(lambda: near.news)
        opened_s = trio.current_time()
        await until(lambda: trio.current_time() > opened_s + 3 * RULES.grace_s)
        assert near.news == [LinkUp("far", False)]


async def test_a_queue_that_grows_too_long_ends_the_session(autojump_clock):
    async with world(queue_bytes=10_000) as (near, far):
        near.links.keep(["far"])
        await until(lambda: near.of(LinkUp))
        far.is_deaf = True
        for number in range(2000):
            near.ask("far", number)
        await until(lambda: near.of(LinkDown))
        assert "bytes are queued for it" in near.of(LinkDown)[0].reason


async def test_a_site_that_may_not_be_dialled_is_a_down_at_once():
    async with world() as (near, _far):
        near.ask("essex", 1)
        await until(lambda: near.of(LinkDown))
        assert near.news == [LinkDown("essex", "the site is not one to dial")]
        await until(lambda: near.links.sites == [])


async def test_a_site_that_is_dropped_hears_why_and_is_not_dialled_again():
    async with world() as (near, far):
        near.links.keep(["far"])
        await until(lambda: near.news)
        near.forbidden.add("far")
        near.links.drop("far", "expelled")
        await until(lambda: far.left == ["expelled"])
        assert near.news[-1] == LinkDown("far", "expelled")
        assert near.links.sites == []


async def test_a_site_that_breaks_the_protocol_is_dialled_ever_more_seldom(autojump_clock):
    async with world() as (near, _far):
        downs = []
        for ups in range(1, 6):
            near.links.keep(["far"])
            await until(lambda ups=ups: len(near.of(LinkUp)) == ups)
            downs.append(trio.current_time())
            near.links.punish("far", "protocol error: nonsense")
        waits_s = [after - before for before, after in itertools.pairwise(downs)]
        assert waits_s == pytest.approx([1, 2, 4, 8], abs=0.9)
        assert near.dials == len(downs)
        assert near.of(LinkDown)[2].reason == ("protocol error: nonsense; in back-off for 4 s")


async def test_a_gateway_that_makes_no_sense_is_dialled_ever_more_seldom(autojump_clock):
    async with world() as (near, far):
        far.listener.receive = lambda pipe, frame, now_s: far.port.send(pipe, b"\xc1") and []
        near.links.keep(["far"])
        begun_s = trio.current_time()
        await until(lambda: trio.current_time() > begun_s + 20.0)
        assert 3 <= near.dials <= 5
        assert "protocol error" in near.of(LinkDown)[0].reason


async def test_what_is_posted_to_a_site_that_broke_the_protocol_waits_not_for_ever(autojump_clock):
    async with world(give_up_s=3.0) as (near, _far):
        for _ in range(6):
            near.links.penalties.note("far", "protocol error: nonsense", trio.current_time())
        near.ask("far", 1)
        await until(lambda: near.of(LinkDown))
        assert "s: protocol error: nonsense" in near.of(LinkDown)[0].reason
        assert near.dials == 0


async def test_what_is_posted_in_a_down_is_sent_with_the_next_up():
    async with world() as (near, far):
        near.links.keep(["far"])
        await until(lambda: near.news)

        def again(news):
            near.news.append(news)
            if isinstance(news, LinkDown):
                near.links.post("far", Ask(77, "status", {}))

        near.links.tell = again
        (peer,) = far.listener.peers.values()
        far.news += far.listener.expel(peer, "go away", trio.current_time())
        await until(lambda: 77 in far.heard)


async def test_urgent_messages_overtake_those_that_wait():
    async with world() as (near, far):
        near.links.keep(["far"])
        await until(lambda: near.news)
        for number in range(3):
            near.links.post("far", Ask(number, "status", {}))
        near.links.post("far", Ask(99, "status", {}), urgent=True)
        near.links.flush(trio.current_time())
        await until(lambda: len(far.heard) == 4)
        assert far.heard == [99, 0, 1, 2]


async def test_a_goodbye_of_the_other_is_a_down():
    async with world() as (near, far):
        near.links.keep(["far"])
        await until(lambda: any(isinstance(each, PeerCameIn) for each in far.news) and near.news)
        far.listener.goodbye("it stops", trio.current_time())
        await until(lambda: near.of(LinkDown))
        assert near.of(LinkDown) == [LinkDown("far", "closed by the site: it stops")]


@pytest.mark.parametrize("site", ["far"])
async def test_our_goodbye_is_heard(site):
    async with world() as (near, far):
        near.ask(site, 1)
        await until(lambda: far.heard)
        await near.dialled.goodbye("we stop")
        await until(lambda: far.left == ["we stop"])
