"""Members for tests: one that is looked at, the others only spoken of or spoken for."""

from random import Random

from federation.membership.events import Admitted, Heard, Send, Started, Tick, WakeAt
from federation.membership.gossip import (
    Bulletin,
    BulletinNotice,
    Gossip,
    MemberState,
    MemberUpdate,
    News,
    Topic,
)
from federation.membership.membership import BOOT_MAX, Membership
from federation.membership.probing import GossipSettings

ME = "site-me"
OTHERS = ("site-a", "site-b", "site-c", "site-d", "site-e")
INCARNATION = 100


def update(site, state=MemberState.ALIVE, incarnation=INCARNATION, by=""):
    return MemberUpdate(site, state, incarnation, by)


def suspect(site, incarnation=INCARNATION, by="site-b"):
    return update(site, MemberState.SUSPECT, incarnation, by)


def dead(site, incarnation=INCARNATION, by="site-b"):
    return update(site, MemberState.DEAD, incarnation, by)


def bulletin(site, version=1, name="gpu", boot=1, body=b"signed"):
    return Bulletin(BulletinNotice(Topic(site, name), boot, version), body)


class Looked:
    """One member under a clock that stands still unless it is moved."""

    def __init__(self, others=OTHERS, settings=None, seed=1, known=None, boot_max=BOOT_MAX):
        self.now = 0.0
        settings = settings or GossipSettings()
        self.core = Membership(ME, INCARNATION, settings, Random(seed), lambda: boot_max)
        self.effects = []
        self.wake_s = None
        self.feed(Admitted(tuple(others)))
        self.feed(Started(tuple(update(site) for site in others) if known is None else known))

    def feed(self, event):
        """Give it an event; the effects."""
        effects = self.core.handle(event, self.now)
        for effect in effects:
            if isinstance(effect, WakeAt):
                self.wake_s = effect.at_s
        self.effects += effects
        return effects

    def hear(self, peer, message):
        return self.feed(Heard(peer, message))

    def told(self, peer, *updates, notices=()):
        """A peer gossips."""
        return self.hear(peer, Gossip(News(updates, tuple(notices))))

    def pass_s(self, seconds, answer=None):
        """Let time pass, tick by tick; `answer(core, send)` may speak for the others."""
        until_s = self.now + seconds
        seen = []
        while self.wake_s is not None and self.wake_s <= until_s:
            self.now = self.wake_s
            effects = self.feed(Tick())
            seen += effects
            for effect in effects if answer else ():
                if isinstance(effect, Send):
                    seen += answer(self, effect) or []
        self.now = until_s
        return seen


def sends(effects, kind):
    """The messages of a kind among effects."""
    return [e for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def told_of(effects, site):
    """The gossip about a site: (peer, update)."""
    return [
        (effect.peer, each)
        for effect in effects
        if isinstance(effect, Send) and hasattr(effect.message, "news")
        for each in effect.message.news.updates
        if each.site == site
    ]
