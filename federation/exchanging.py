"""Full exchanges: all that a member holds, and what another knows better. Pure functions."""

from random import Random
from typing import Final

from federation.bulletins import Board
from federation.gossip import NOTICES_MAX, Claim, Exchange, News
from federation.roster import Roster

_UNKNOWN: Final = (-1, -1)


def tell_everything(own: Claim, roster: Roster, board: Board, rng: Random) -> Exchange:
    """All that is held, our own claim first; of too many notices, some that are drawn."""
    notices = [bulletin.notice for bulletin in board]
    if len(notices) > NOTICES_MAX:
        notices = rng.sample(notices, NOTICES_MAX)
    return Exchange(False, News((own, *roster.claims()), tuple(notices)))


def answer_exchange(own: Claim, roster: Roster, board: Board, news: News) -> Exchange:
    """What is held and the other side does not have, or not as new."""
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
    return Exchange(True, News(claims, tuple(notices[:NOTICES_MAX])))
