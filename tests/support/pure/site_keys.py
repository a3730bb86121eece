"""Sites for tests: keys that are the same in every run, cards, and trusted sites."""

import functools
import hashlib
from dataclasses import replace

from federation.signed.declarations import SiteCard, sign
from federation.signed.identity import SiteKey
from gateway.trust import book_file
from gateway.trust.book import TrustBook
from gateway.trust.certificates import make_leaf
from gateway.trust.identity_store import TRUST_FILE
from gateway.trust.invitations import Invitations
from gateway.trust.keys import create_keys, make_generation

FEDERATION = "banks-7f3a"
NOW_S = 1_700_000_000.0


def key(name):
    """A signing key, by name."""
    return SiteKey(hashlib.sha256(name.encode()).digest())


@functools.cache
def leaf(site, number=0):
    """A leaf of a site; the same one in one run."""
    return make_leaf(site, [f"gw{number}.example"], NOW_S)


def card(site, keys=None, serial=100, **details):
    """A signed card of a site: signed by the first of the named keys."""
    names = keys or [site]
    fields = {
        "federation": FEDERATION,
        "site": site,
        "keys": tuple(key(name).public for name in names),
        "past": (),
        "leaves": (leaf(site).certificate,),
        "addresses": (f"tls+tcp://{site}.example:7462",),
        "contact": f"ops@{site}.example",
        "serial": serial,
        "issued_s": NOW_S,
        **details,
    }
    return sign(SiteCard(**fields), key(names[0]))


def folder_of_london(folder):
    """London's keys and book on disk, with Paris and Berlin approved."""
    generation = make_generation("london", ["127.0.0.1"], NOW_S)
    create_keys(folder, generation)
    own = card("london").content
    own = replace(own, keys=(generation.key.public,), leaves=(generation.leaf.certificate,))
    made = TrustBook(sign(own, generation.key))
    for site in ("paris", "berlin"):
        made.admit(card(site), NOW_S, approve=True)
    book_file.save(folder / TRUST_FILE, made, Invitations())
    return folder


class KnownSites:
    """A Trust: sites that are believed, by the keys of their names."""

    def __init__(self, site, *others, federation=FEDERATION):
        self.site = site
        self.federation = federation
        self.keys = {name: (key(name).public,) for name in (site, *others)}
        self.past = {}
        self.revoked = {}
        self.welcome = set()

    def keys_of(self, site):
        return self.keys.get(site, ())

    def lasting_keys_of(self, site):
        return (*self.keys_of(site), *self.past.get(site, ()))

    def welcomes(self, site):
        return site in self.welcome

    def revoked_by(self, site):
        return self.revoked.get(site, ())
