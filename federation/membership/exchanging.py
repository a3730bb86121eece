"""Full exchanges: a member sends all it holds, and gets the other's newer items. Pure functions."""

from typing import Final

from federation.chance import Chance
from federation.membership.bulletins import Board
from federation.membership.gossip import NOTICES_MAX, GossipExchange, MemberUpdate, News
from federation.membership.roster import MemberRoster

_UNKNOWN: Final = (-1, -1)


def tell_everything(
    own: MemberUpdate, roster: MemberRoster, board: Board, rng: Chance
) -> GossipExchange:
    """Return all updates, our own first, and all notices, or a sample if there are too many."""
    notices = [bulletin.notice for bulletin in board]
    if len(notices) > NOTICES_MAX:
        notices = rng.sample(notices, NOTICES_MAX)
    return GossipExchange(False, News((own, *roster.updates()), tuple(notices)))


def answer_exchange(
    own: MemberUpdate, roster: MemberRoster, board: Board, news: News
) -> GossipExchange:
    """Return the updates and notices that the other side lacks or has in an older version."""
    ranks = {update.site: (update.incarnation, update.state) for update in news.updates}
    ages = {notice.topic: notice.age for notice in news.notices}
    updates = tuple(
        update
        for update in (own, *roster.updates())
        if (update.incarnation, update.state) > ranks.get(update.site, _UNKNOWN)
    )
    notices = [
        bulletin.notice
        for bulletin in board
        if bulletin.notice.age > ages.get(bulletin.notice.topic, _UNKNOWN)
    ]
    return GossipExchange(True, News(updates, tuple(notices[:NOTICES_MAX])))
