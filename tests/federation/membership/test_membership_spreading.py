"""How news spreads: rumours with a bound, bulletins that are fetched once, newest wins."""

import pytest
from support.pure.membership import ME, OTHERS, Looked, bulletin, sends, suspect, told_of, update

from federation.membership.events import (
    Admitted,
    Announce,
    Expelled,
    Learned,
    Send,
    Unreachable,
)
from federation.membership.gossip import (
    Ack,
    BulletinNotice,
    Bulletins,
    Gossip,
    GossipExchange,
    MemberState,
    News,
    Ping,
    Topic,
    Want,
    to_plain,
)
from federation.membership.probing import (
    GossipSettings,
    exchange_every_s,
    refresh_every_s,
    retransmissions,
)
from federation.membership.rumours import Rumours
from federation.messages.wire import pack


def notices_to(effects, site):
    """The notices that a site is sent."""
    return [
        notice
        for effect in effects
        if isinstance(effect, Send) and effect.peer == site and hasattr(effect.message, "news")
        for notice in effect.message.news.notices
    ]


def queue(*neighbours):
    rumours = Rumours()
    rumours.steer(neighbours)
    return rumours


# --- rumours -------------------------------------------------------------------------------------


def test_a_rumour_goes_to_each_neighbour_once_and_not_to_its_source() -> None:
    rumours = queue("a", "b", "c")
    rumours.put("x", update("site-a"), "b")
    assert [len(rumours.take(peer, 1000, 9)[0]) for peer in "abcabc"] == [1, 0, 1, 0, 0, 0]
    assert not rumours


def test_a_neighbour_that_has_it_is_not_told() -> None:
    rumours = queue("a", "b")
    rumours.put("x", update("site-a"), None)
    rumours.heard("a", "x")
    assert not rumours.has_for("a")
    assert rumours.has_for("b")


def test_what_is_taken_fits_and_the_rest_waits_in_order() -> None:
    rumours = queue("a")
    for number in range(10):
        rumours.put(number, update(f"site-{number}"), None)
    size = update("site-0").size_bytes
    taken, taken_bytes = rumours.take("a", 3 * size + 1, 9)
    assert [each.site for each in taken] == ["site-0", "site-1", "site-2"]
    assert taken_bytes == 3 * size
    assert len(rumours.take("a", 10**6, 9)[0]) == 7


def test_a_rumour_is_sent_only_so_often() -> None:
    rumours = queue(*"abcdefgh")
    rumours.put("x", update("site-a"), None)
    assert sum(len(rumours.take(peer, 1000, 5)[0]) for peer in "abcdefgh") == 5


def test_what_a_lost_connection_carried_is_told_again_up_to_the_limit() -> None:
    rumours = queue("a")
    rumours.put("x", update("site-a"), None)
    counts = []
    for _ in range(5):
        counts.append(len(rumours.take("a", 1000, 3)[0]))
        rumours.lost("a")
    assert counts == [1, 1, 1, 0, 0]


def test_what_has_arrived_is_not_told_again() -> None:
    rumours = queue("a")
    rumours.put("x", update("site-a"), None)
    rumours.take("a", 1000, 9)
    rumours.arrived("a")
    rumours.lost("a")
    assert not rumours


def test_of_one_key_the_latest_is_told() -> None:
    rumours = queue("a")
    rumours.put("x", update("site-a"), None)
    rumours.put("x", suspect("site-a"), None)
    assert rumours.take("a", 1000, 9)[0] == [suspect("site-a")]


@pytest.mark.parametrize(("members", "times"), [(2, 3), (10, 7), (100, 13), (1000, 19)])
def test_the_limit_grows_with_the_logarithm(members, times) -> None:
    assert retransmissions(GossipSettings(), members) == times


def test_changes_that_keep_coming_go_out_in_rounds() -> None:
    looked = Looked()
    first = looked.told("site-b", suspect("site-a"))
    second = looked.told("site-b", suspect("site-c"))
    assert sends(first, Gossip)
    assert not sends(second, Gossip)
    later = looked.pass_s(0.2, lambda *_: None)
    assert {peer for peer, _ in told_of(later, "site-c")} == set(OTHERS) - {"site-b"}


def test_no_message_carries_more_news_than_it_may() -> None:
    settings = GossipSettings(news_bytes=512)
    crowd = tuple(f"far-{number:03}" for number in range(200))
    looked = Looked(settings=settings)
    looked.feed(Admitted(crowd, direct=False))
    looked.told("site-a", *(update(site) for site in crowd))
    effects = looked.effects + looked.pass_s(5.0, ack)
    told = [e for e in effects if isinstance(e, Send) and isinstance(e.message, Gossip | Ping)]
    assert max(len(pack(to_plain(each.message))) for each in told) <= 512 + 24
    assert {each.site for peer, each in all_told(effects) if peer == "site-c"} >= set(crowd)


def ack(looked, send):
    if isinstance(send.message, Ping):
        return looked.hear(send.peer, Ack(send.message.number))
    return []


def all_told(effects):
    return [pair for site in sorted(set(sites_of(effects))) for pair in told_of(effects, site)]


def sites_of(effects):
    return [
        each.site
        for effect in effects
        if isinstance(effect, Send) and hasattr(effect.message, "news")
        for each in effect.message.news.updates
    ]


def test_too_narrow_a_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="news_bytes"):
        GossipSettings(news_bytes=100)


# --- bulletins -----------------------------------------------------------------------------------


def test_our_own_bulletin_is_announced_and_sent_to_who_wants_it() -> None:
    looked = Looked()
    ours = bulletin(ME)
    effects = looked.feed(Announce(ours))
    assert all(notices_to(effects, site) == [ours.notice] for site in OTHERS)
    (answer,) = looked.hear("site-a", Want((ours.notice.topic,)))
    assert answer == Send("site-a", Bulletins((ours,)))


@pytest.mark.parametrize("wrong", [bulletin("site-a"), bulletin(ME, version=1)])
def test_only_newer_bulletins_of_our_own_are_announced(wrong) -> None:
    looked = Looked()
    looked.feed(Announce(bulletin(ME, version=1)))
    with pytest.raises(ValueError, match=r"this site|newer"):
        looked.feed(Announce(wrong))


def test_a_bulletin_is_fetched_from_the_first_who_has_it_learnt_and_passed_on() -> None:
    looked = Looked()
    news = bulletin("site-e")
    (want,) = looked.told("site-a", notices=[news.notice])[:1]
    assert want == Send("site-a", Want((news.notice.topic,)))
    assert not sends(looked.told("site-b", notices=[news.notice]), Want)
    effects = looked.hear("site-a", Bulletins((news,)))
    assert Learned(news) in effects
    assert notices_to(effects, "site-c") == [news.notice]
    assert notices_to(effects, "site-a") == []
    assert looked.core.bulletin(news.notice.topic) == news


def test_a_bulletin_that_does_not_come_is_asked_of_another() -> None:
    looked = Looked()
    notice = bulletin("site-e").notice
    looked.told("site-a", notices=[notice])
    looked.told("site-b", notices=[notice])
    effects = looked.pass_s(1.5, ack)
    assert [each.peer for each in sends(effects, Want)] == ["site-b"]


def test_a_notice_of_what_does_not_exist_keeps_nobody_from_the_newest_there_is() -> None:
    looked = Looked()
    wanted = bulletin("site-a", version=2)
    invented = bulletin("site-a", version=1 << 60).notice
    looked.told("site-b", notices=[invented])
    looked.told("site-c", notices=[wanted.notice])
    looked.told("site-b", notices=[invented])
    effects = looked.pass_s(1.5)
    assert [each.peer for each in sends(effects, Want)] == ["site-c"]
    looked.hear("site-c", Bulletins((wanted,)))
    assert looked.core.bulletin(wanted.notice.topic) == wanted


def test_who_told_of_an_older_bulletin_is_asked_when_the_newer_does_not_come() -> None:
    looked = Looked()
    looked.told("site-c", notices=[bulletin("site-a", version=2).notice])
    looked.told("site-b", notices=[bulletin("site-a", version=1 << 60).notice])
    effects = looked.pass_s(1.5)
    assert [each.peer for each in sends(effects, Want)] == ["site-c"]


def test_a_lost_connection_makes_us_ask_another_at_once() -> None:
    looked = Looked()
    notice = bulletin("site-e").notice
    looked.told("site-a", notices=[notice])
    looked.told("site-b", notices=[notice])
    effects = looked.feed(Unreachable("site-a"))
    assert [each.peer for each in sends(effects, Want)] == ["site-b"]


def test_the_newest_bulletin_wins_by_boot_and_then_version() -> None:
    looked = Looked()
    ages = [(1, 5), (1, 4), (2, 1), (1, 9), (2, 2)]
    learned = []
    for boot, version in ages:
        found = bulletin("site-e", version, boot=boot)
        learned += [e for e in looked.hear("site-a", Bulletins((found,))) if type(e) is Learned]
    assert [each.bulletin.notice.age for each in learned] == [(1, 5), (2, 1), (2, 2)]


def test_what_a_site_said_in_an_earlier_life_is_over() -> None:
    looked = Looked()
    looked.hear("site-a", Bulletins((bulletin("site-e", name="old"),)))
    looked.hear("site-a", Bulletins((bulletin("site-e", name="new", boot=2),)))
    assert looked.core.bulletin(Topic("site-e", "old")) is None
    assert not looked.core.is_news(BulletinNotice(Topic("site-e", "old"), 1, 99))


def test_bulletins_of_who_is_no_member_are_not_taken() -> None:
    looked = Looked()
    strange = bulletin("stranger")
    assert not looked.core.is_news(strange.notice)
    assert looked.told("site-a", notices=[strange.notice]) == []
    assert looked.hear("site-a", Bulletins((strange,))) == []


def test_a_site_has_only_so_many_bulletins() -> None:
    looked = Looked(settings=GossipSettings(topics_max=2))
    for name in ("one", "two", "three"):
        looked.hear("site-a", Bulletins((bulletin("site-e", name=name),)))
    assert looked.core.bulletin(Topic("site-e", "three")) is None
    assert looked.core.is_news(bulletin("site-e", 2, "one").notice)


def test_only_so_many_bulletins_are_fetched_at_a_time() -> None:
    looked = Looked(settings=GossipSettings(fetches_max=3))
    notices = [bulletin("site-e", name=f"pool-{number}").notice for number in range(9)]
    (want,) = sends(looked.told("site-a", notices=notices), Want)
    assert len(want.message.topics) == 3


def test_an_answer_is_bounded_in_bytes() -> None:
    looked = Looked(settings=GossipSettings(answer_bytes=1000))
    topics = []
    for number in range(9):
        ours = bulletin(ME, name=f"pool-{number}", body=bytes(300))
        topics.append(ours.notice.topic)
        looked.feed(Announce(ours))
    (answer,) = sends(looked.hear("site-a", Want(tuple(topics))), Bulletins)
    assert len(answer.message.items) == 2
    assert len(pack(to_plain(answer.message))) <= 1000 + 24


def test_the_bulletins_of_an_expelled_site_are_dropped() -> None:
    looked = Looked()
    looked.hear("site-a", Bulletins((bulletin("site-e"),)))
    looked.feed(Expelled("site-e"))
    assert looked.core.bulletin(Topic("site-e", "gpu")) is None


def test_an_exchange_brings_what_was_missed_both_ways() -> None:
    looked = Looked()
    held, missed = bulletin("site-d"), bulletin("site-e")
    looked.hear("site-a", Bulletins((held,)))
    looked.pass_s(5.0, ack)
    effects = looked.hear("site-b", GossipExchange(False, News((), (missed.notice,))))
    (answer,) = sends(effects, GossipExchange)
    assert answer.message.is_answer
    assert answer.message.news.notices == (held.notice,)
    assert Send("site-b", Want((missed.notice.topic,))) in effects


def test_an_exchange_between_equals_says_nothing_twice() -> None:
    looked = Looked()
    everything = tuple(update(site) for site in OTHERS)
    own = update(ME, MemberState.ALIVE, looked.core.incarnation)
    (answer,) = sends(
        looked.hear("site-b", GossipExchange(False, News((own, *everything)))), GossipExchange
    )
    assert answer.message.news == News()


# --- how often -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("members", "every_s"), [(1, 30), (32, 30), (33, 60), (1000, 180)])
def test_exchanges_are_rarer_among_many(members, every_s) -> None:
    assert exchange_every_s(GossipSettings(), members) == every_s


@pytest.mark.parametrize(
    ("bulletins", "size", "every_s"), [(10, 1000, 30), (300, 1000, 100), (10_000, 1000, 300)]
)
def test_refreshing_costs_as_much_as_it_may(bulletins, size, every_s) -> None:
    assert refresh_every_s(GossipSettings(), bulletins, size) == every_s
