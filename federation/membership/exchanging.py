"""Full exchanges: a member sends all it holds, and gets the other's newer items. Pure functions."""

from typing import Final

from federation.chance import Chance
from federation.membership.bulletins import Board
from federation.membership.gossip import NOTICES_MAX, GossipExchange, MemberClaim, News
from federation.membership.roster import MemberRoster

_UNKNOWN: Final = (-1, -1)


def tell_everything(
    own: MemberClaim, roster: MemberRoster, board: Board, rng: Chance
) -> GossipExchange:
    """Return all claims, our own first, and all notices, or a sample if there are too many."""
    notices = [bulletin.notice for bulletin in board]
    if len(notices) > NOTICES_MAX:
        notices = rng.sample(notices, NOTICES_MAX)
    return GossipExchange(False, News((own, *roster.claims()), tuple(notices)))


def answer_exchange(
    own: MemberClaim, roster: MemberRoster, board: Board, news: News
) -> GossipExchange:
    """Return the claims and notices that the other side lacks or has in an older version."""
    ranks = {claim.site: (claim.incarnation, claim.state) for claim in news.claims}
    ages = {notice.topic: notice.age for notice in news.notices}
    claims = tuple(
        claim
        for claim in (own, *roster.claims())
        if (claim.incarnation, claim.state) > ranks.get(claim.site, _UNKNOWN)
    )
    notices = [
        bulletin.notice
        for bulletin in board
        if bulletin.notice.age > ages.get(bulletin.notice.topic, _UNKNOWN)
    ]
    return GossipExchange(True, News(claims, tuple(notices[:NOTICES_MAX])))
