"""An owner's keys about shares, and the refusals, by key."""

import pytest

from policies.access.shares import BadShares, FairShare, Share
from policies.parties import PartyKind, read_party


def share(name, who="", parent="", shares=1, each=None):
    return Share(name, shares, parent, read_party(who) if who else None, each)


GOOD = [
    (share("a", "project:risk"), share("b", "all")),
    (share("top"), share("a", "project:risk", "top"), share("b", "user:ada", "top")),
    # A child may be written before its parent; who is asked within a parent may be as outside.
    (share("a", "user:ada", "risk"), share("risk", "project:risk"), share("b", "user:ada")),
    (share("o", "others", each=PartyKind.SITE), share("u", "ours", each=PartyKind.USER)),
    (share("ada", "user:ada"), share("u", "ours")),
]


@pytest.mark.parametrize("shares", GOOD)
def test_trees_that_can_be(shares):
    assert FairShare(shares=shares).shares == shares


BAD = [
    ((), "share is missing: write [[fair_share.share]] tables, or each"),
    ((share("a", "all", "x"),), "share 'a': parent is 'x': no such share"),
    ((share("a", "all", "a"),), "share 'a': parent forms a cycle: 'a', 'a'"),
    (
        (share("a", "all", "b"), share("b", "all", "c"), share("c", "all", "a")),
        "share 'c': parent forms a cycle: 'a', 'b', 'c', 'a'",
    ),
    (
        (share("x", "all", "b"), share("b", "all", "c"), share("c", "ours", "b")),
        "share 'c': parent forms a cycle: 'b', 'c', 'b'",
    ),
    ((share("a", "all", shares=0),), "share 'a': shares is 0: must be from 1 to 1000000"),
    ((share("a", "all", shares=-1),), "share 'a': shares is -1"),
    ((share("a", "user:x"), share("a", "user:y")), "share 'a': name is the name of another share"),
    ((share("rest", "all"),), "share 'rest': name is reserved"),
    ((share("", "all"),), "share '': name must be"),
    ((share("a/b", "all"),), "share 'a/b': name must be"),
    ((share("a\n", "all"),), "name must be"),
    ((share("x" * 61, "all"),), "name must be"),
    ((share("a"),), "share 'a': who is missing, and no share has this one as its parent"),
    (
        (share("a", each=PartyKind.USER), share("b", "all", "a")),
        "share 'a': each requires who",
    ),
    (
        (share("a", "all", each=PartyKind.ALL),),
        "share 'a': each is 'all': must be one of group, project",
    ),
    (
        (share("a", "project:risk"), share("b", "project:risk")),
        "share 'b': who is 'project:risk', which 'a' has too: name a party once",
    ),
    (  # named once in each of two groups: the second would never have anything
        (share("g"), share("h"), share("a", "user:x", "g"), share("b", "user:x", "h")),
        "share 'b': who is 'user:x', which 'a' has too",
    ),
    ((share("a", "all"), share("b", "user:x")), "share 'b': who is 'user:x', but 'a' (all)"),
    ((share("a", "others"), share("b", "site:x")), "move 'b' above it"),
    ((share("a", "ours"), share("b", "group:x")), "move 'b' above it"),
    (
        tuple(share(str(n), "all", str(n + 1) if n < 8 else "") for n in range(9)),
        "share '0': parent is 8 levels deep",
    ),
    (
        tuple(share(str(n), f"user:{n}") for n in range(1_001)),
        "share has 1,001 entries, the limit is 1,000",
    ),
]


@pytest.mark.parametrize(("shares", "text"), BAD, ids=[text[:40] for _, text in BAD])
def test_trees_that_can_not_be_are_refused_by_name_and_key(shares, text):
    with pytest.raises(BadShares) as caught:
        FairShare(shares=shares)
    assert text in str(caught.value)
    assert caught.value.share is None or caught.value.share in shares
    assert f"{caught.value.key} " in str(caught.value)


def test_each_at_the_top_is_enough():
    assert FairShare(each=PartyKind.PROJECT).shares == ()
    with pytest.raises(BadShares, match="each is 'ours'"):
        FairShare(each=PartyKind.OURS)
