"""The trust book: hearsay is not trust, our own word wins, the order of news does not matter."""

import dataclasses
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.site_keys import FEDERATION, NOW_S, card, key, leaf

from federation.signed.declarations import (
    DeclarationOrder,
    Expulsion,
    Farewell,
    Revocations,
    read_card,
    sign,
)
from federation.signed.identity import TrustRefusal, Untrusted, fingerprint
from gateway.config.federation import Follow
from gateway.trust import book_file
from gateway.trust.book import MEMBERS_MAX, BookError, TrustBook
from gateway.trust.book_file import TrustFileError
from gateway.trust.invitations import Invitations
from gateway.trust.keys import KeyFileError
from gateway.trust.permissions import (
    ANY,
    ITSELF,
    PermissionReason,
    PermissionRequest,
    Verb,
    forbid,
    permit,
)
from gateway.trust.standing import TrustLevel


def book(*approved, known=(), follow=Follow.TWO):
    made = TrustBook(card("london"), follow)
    for site in (*approved, *known):
        made.note("card", card(site).raw, NOW_S)
    for site in approved:
        made.approve(site, made.find(site).fingerprint)
    return made


def refusal(call, *args, **details):
    with pytest.raises(Untrusted) as caught:
        call(*args, **details)
    return caught.value.refusal


def expulsion(by, site, stands=True, serial=1, reason=""):
    content = Expulsion(FEDERATION, by, site, stands, reason, serial, NOW_S)
    return sign(content, key(by)).raw


def farewell(site, serial):
    return sign(Farewell(FEDERATION, site, serial, NOW_S), key(site)).raw


REVOKED = Revocations(FEDERATION, "paris", ("a" * 16,), 1, NOW_S)


def asked(site, verb=Verb.SEND, **details):
    fields = {
        "pool": "cpu",
        "project": "risk",
        "data_class": "public",
        "other": site,
        "slots": 1,
        "open_nanos": 0,
        "currency": "EUR",
        **details,
    }
    return PermissionRequest(verb=verb, site=site, **fields)


# --- levels --------------------------------------------------------------------------------------


def test_who_is_heard_of_is_known_and_no_more():
    made = book(known=["paris"])
    assert made.level("paris") is TrustLevel.KNOWN
    assert made.level("lyon") is None
    assert made.level("london") is TrustLevel.APPROVED
    assert made.keys_of("paris") == (key("paris").public,)
    assert made.keys_of("lyon") == ()
    assert set(made.pins()) == {"london"}
    assert made.decide(asked("paris")).why is PermissionReason.NOT_APPROVED
    assert made.decide(asked("lyon")).why is PermissionReason.NOT_APPROVED


def test_an_operator_approves_a_fingerprint():
    made = book(known=["paris"])
    right, wrong = (book(known=[s]).find(s).fingerprint for s in ("paris", "lyon"))
    with pytest.raises(BookError, match="is not the fingerprint") as refused:
        made.approve("paris", wrong)
    told = str(refused.value)
    assert f"{wrong[:9]}… is not" in told
    assert f"begins with {right[:9]}… here" in told
    assert right[:12] not in told  # nobody copies it without a comparison
    assert made.level("paris") is TrustLevel.KNOWN
    made.approve("paris", made.find("paris").fingerprint.lower().replace("-", ""))
    assert made.level("paris") is TrustLevel.APPROVED
    assert made.pins()["paris"] == (leaf("paris").certificate,)
    with pytest.raises(BookError, match="site 'lyon' not found"):
        made.approve("lyon", "")


def test_an_operator_accepts_new_keys_to_which_no_card_leads():
    made = book("paris")
    made.trust("paris", [permit(Verb.SEND)])
    new = card("paris", ["other-key"], serial=200)
    shown = fingerprint("paris", key("other-key").public)
    assert refusal(made.note, "card", new.raw, NOW_S) is TrustRefusal.NOT_SUCCESSOR
    for text, error in (
        ("ABCD", "is not a fingerprint"), (made.find("paris").fingerprint, "in use already"),
    ):  # fmt: skip
        with pytest.raises(BookError, match=error):
            made.await_keys("paris", text)
    made.await_keys("paris", shown.lower().replace("-", " "))
    third = card("paris", ["third-key"], serial=200)
    assert refusal(made.note, "card", third.raw, NOW_S) is TrustRefusal.NOT_SUCCESSOR
    assert made.note("card", new.raw, NOW_S) is DeclarationOrder.NEWER
    assert made.keys_of("paris") == (key("other-key").public,)
    assert made.rules_of("paris") == {permit(Verb.SEND)}
    assert made.level("paris") is TrustLevel.APPROVED
    assert made.find("paris").lineage == []
    # It counts once: the same operator has not accepted what comes later.
    last = card("paris", ["paris"], serial=300)
    assert refusal(made.note, "card", last.raw, NOW_S) is TrustRefusal.NOT_SUCCESSOR


def test_an_older_card_with_accepted_keys_is_not_taken():
    made = book("paris")
    made.await_keys("paris", fingerprint("paris", key("other-key").public))
    older = card("paris", ["other-key"], serial=made.find("paris").card.content.serial - 1)
    made.note("card", older.raw, NOW_S)
    assert made.keys_of("paris") == (key("paris").public,)


def test_keys_are_accepted_of_approved_sites_only():
    made = book(known=["paris"])
    with pytest.raises(BookError, match="is not approved here: it joins with an invitation"):
        made.await_keys("paris", fingerprint("paris", key("other-key").public))


def test_a_site_with_accepted_keys_comes_by_an_invitation_as_it_was():
    made = book("paris")
    made.trust("paris", [permit(Verb.SEND)])
    made.await_keys("paris", fingerprint("paris", key("other-key").public))
    new = card("paris", ["other-key"], serial=200)
    assert made.admit(new, NOW_S, approve=False) is TrustLevel.APPROVED
    assert made.rules_of("paris") == {permit(Verb.SEND)}


def test_who_was_invited_is_pending_until_he_is_approved():
    made = book()
    assert made.admit(card("paris"), NOW_S, approve=False) is TrustLevel.PENDING
    assert "paris" not in made.pins()
    assert made.decide(asked("paris")).why is PermissionReason.NOT_APPROVED
    assert made.admit(card("lyon"), NOW_S, approve=True) is TrustLevel.APPROVED
    made.approve("paris", made.find("paris").fingerprint)
    assert made.admit(card("paris"), NOW_S, approve=False) is TrustLevel.APPROVED


def test_an_invited_site_takes_the_place_of_hearsay_only():
    made = book("paris", known=["lyon"])
    assert made.admit(card("lyon", ["other-key"]), NOW_S, approve=False) is TrustLevel.PENDING
    assert made.keys_of("lyon") == (key("other-key").public,)
    for site in ("paris", "lyon"):
        impostor = card(site, ["third-key"], serial=200)
        assert refusal(made.admit, impostor, NOW_S, approve=True) is TrustRefusal.NOT_SUCCESSOR
    assert refusal(made.admit, card("london"), NOW_S, approve=True) is TrustRefusal.WRONG_SITE


def test_a_card_must_be_fit():
    made = book()
    foreign = card("paris", federation="others-1")
    assert refusal(made.note, "card", foreign.raw, NOW_S) is TrustRefusal.WRONG_FEDERATION
    borrowed = card("paris", leaves=(leaf("lyon").certificate,))
    assert refusal(made.note, "card", borrowed.raw, NOW_S) is TrustRefusal.BAD_CERTIFICATE
    early = card("paris", issued_s=NOW_S + 60)
    assert refusal(made.note, "card", early.raw, NOW_S) is TrustRefusal.AHEAD
    assert refusal(made.admit, early, NOW_S, approve=True) is TrustRefusal.AHEAD
    assert refusal(made.note, "song", b"", NOW_S) is TrustRefusal.ALTERED
    assert made.members == {}


def test_the_book_is_bounded_and_invited_sites_find_room(monkeypatch):
    assert MEMBERS_MAX == 4096
    monkeypatch.setattr("gateway.trust.book.MEMBERS_MAX", 2)
    made = book("paris", known=["lyon", "cork"])
    made.welcome("lyon", users=True)
    assert made.admit(card("oslo"), NOW_S, approve=True) is TrustLevel.APPROVED
    assert set(made.members) == {"paris", "oslo"}
    assert refusal(made.admit, card("rome"), NOW_S, approve=True) is TrustRefusal.FULL
    assert refusal(made.approve, "cork", made.find("cork").fingerprint) is TrustRefusal.FULL


def test_who_is_forgotten_is_a_stranger_again():
    made = book("paris")
    made.forget("paris")
    assert made.level("paris") is None
    with pytest.raises(BookError, match="not found"):
        made.forget("paris")


# --- keys and cards ------------------------------------------------------------------------------


def test_keys_rotate_without_losing_approval():
    made = book("paris")
    both = card("paris", ["paris", "paris-2"], serial=200)
    after = card("paris", ["paris-2"], serial=300, past=(key("paris").public,))
    assert made.note("card", both.raw, NOW_S) is DeclarationOrder.NEWER
    assert made.keys_of("paris") == (key("paris").public, key("paris-2").public)
    assert made.note("card", after.raw, NOW_S) is DeclarationOrder.NEWER
    assert made.level("paris") is TrustLevel.APPROVED
    assert made.keys_of("paris") == (key("paris-2").public,)
    assert made.lasting_keys_of("paris") == (key("paris-2").public, key("paris").public)
    assert made.note("card", both.raw, NOW_S) is DeclarationOrder.OLDER
    assert made.note("card", after.raw, NOW_S) is DeclarationOrder.SAME


def test_who_was_away_finds_the_way_by_the_cards_in_between():
    made, away = book("paris"), book("paris")
    steps = [("paris", "k2"), ("k2",), ("k2", "k3"), ("k3",), ("k3",)]
    for at, names in enumerate(steps):
        made.note("card", card("paris", list(names), serial=200 + at).raw, NOW_S)
    newest = made.cards_since("paris", 203)
    assert [read_card(raw).content.serial for raw in newest] == [204]
    assert refusal(away.note, "card", newest[0], NOW_S) is TrustRefusal.NOT_SUCCESSOR
    for raw in made.cards_since("paris", 100):
        away.note("card", raw, NOW_S)
    assert away.keys_of("paris") == made.keys_of("paris") == (key("k3").public,)
    assert away.level("paris") is TrustLevel.APPROVED


def test_a_card_by_another_key_changes_nothing():
    made = book("paris")
    impostor = card("paris", ["thief"], serial=900)
    assert refusal(made.note, "card", impostor.raw, NOW_S) is TrustRefusal.NOT_SUCCESSOR
    assert made.keys_of("paris") == (key("paris").public,)
    assert made.members["paris"].evidence == []


def test_equivocation_is_kept_as_evidence_and_ends_approval():
    made = book("paris")
    other = card("paris", contact="elsewhere")
    assert refusal(made.note, "card", other.raw, NOW_S) is TrustRefusal.EQUIVOCATION
    assert made.members["paris"].evidence == [card("paris").raw, other.raw]
    assert made.level("paris") is TrustLevel.PENDING
    assert refusal(made.note, "card", other.raw, NOW_S) is TrustRefusal.EQUIVOCATION
    assert len(made.members["paris"].evidence) == 2
    made.approve("paris", made.find("paris").fingerprint)
    assert made.level("paris") is TrustLevel.APPROVED


def test_a_stranger_can_not_frame_a_site():
    made = book("paris")
    assert refusal(made.note, "card", card("paris", ["thief"]).raw, NOW_S) is (
        TrustRefusal.NOT_SUCCESSOR
    )
    assert made.level("paris") is TrustLevel.APPROVED


def test_a_card_of_ours_that_we_did_not_issue_is_an_alarm():
    made = book()
    assert made.note("card", card("london").raw, NOW_S) is DeclarationOrder.SAME
    strange = card("london", serial=900)
    assert refusal(made.note, "card", strange.raw, NOW_S) is TrustRefusal.EQUIVOCATION
    assert made.own.card.content.serial == 100


def renewal(book_, names=("london",), **details):
    was = book_.own.card.content
    details.setdefault("issued_s", was.issued_s + 100)
    return dataclasses.replace(was, keys=tuple(key(name).public for name in names), **details)


def test_our_own_card_is_renewed_when_it_changes_and_only_then():
    made = book()
    assert not made.renew(renewal(made), key("london"))
    assert made.renew(renewal(made, contact="new"), key("london"))
    assert made.own.card.content.serial == int(NOW_S + 100)
    assert read_card(made.own.card.raw).content.contact == "new"


def test_our_own_rotation_leaves_a_past_unless_the_key_was_stolen():
    made = book()
    made.renew(renewal(made, ("london", "l2")), key("london"))
    made.renew(renewal(made, ("l2",)), key("l2"))
    assert made.own.card.content.past == (key("london").public,)
    made.renew(renewal(made, ("l2", "l3")), key("l2"))
    made.renew(renewal(made, ("l3",)), key("l3"), compromised=True)
    assert made.own.card.content.past == ()
    assert not made.renew(renewal(made, ("l3",)), key("l3"))


def test_our_own_card_can_not_jump_to_a_key_that_nobody_was_told_of():
    made = book()
    assert refusal(made.renew, renewal(made, ("l2",)), key("l2")) is TrustRefusal.NOT_SUCCESSOR


# --- leaving -------------------------------------------------------------------------------------


def test_who_left_is_out_until_he_comes_back_and_is_approved_anew():
    made = book("paris")
    made.trust("paris", [permit(Verb.SEND)])
    assert made.note("farewell", farewell("paris", 200), NOW_S) is DeclarationOrder.NEWER
    assert made.level("paris") is TrustLevel.LEFT
    assert made.keys_of("paris") == ()
    assert made.decide(asked("paris")).why is PermissionReason.NOT_APPROVED
    with pytest.raises(BookError, match="has left"):
        made.approve("paris", made.find("paris").fingerprint)
    made.note("card", card("paris", serial=300).raw, NOW_S)
    assert made.level("paris") is TrustLevel.KNOWN
    made.approve("paris", made.find("paris").fingerprint)
    assert made.level("paris") is TrustLevel.APPROVED
    assert made.note("farewell", farewell("paris", 200), NOW_S) is DeclarationOrder.SAME
    assert made.level("paris") is TrustLevel.APPROVED


def test_who_comes_back_after_a_farewell_is_trusted_with_nothing():
    made = book("paris")
    made.trust("paris", [permit(Verb.RUN)])
    made.trust_results("paris", pickles=True)
    made.note("farewell", farewell("paris", 200), NOW_S)
    member = made.members["paris"]
    assert (member.rules, member.pickles, member.users) == (frozenset(), False, False)


def test_nobody_says_farewell_for_another():
    made = book("paris", "lyon")
    forged = sign(Farewell(FEDERATION, "paris", 200, NOW_S), key("lyon")).raw
    assert refusal(made.note, "farewell", forged, NOW_S) is TrustRefusal.BAD_SIGNATURE
    assert refusal(made.note, "farewell", farewell("oslo", 5), NOW_S) is TrustRefusal.UNKNOWN_SITE
    foreign = sign(Farewell("others-1", "paris", 200, NOW_S), key("paris")).raw
    assert refusal(made.note, "farewell", foreign, NOW_S) is TrustRefusal.WRONG_FEDERATION
    assert made.level("paris") is TrustLevel.APPROVED


def test_our_own_farewell_is_believed_by_others():
    made, other = book(), TrustBook(card("paris"))
    other.admit(card("london"), NOW_S, approve=True)
    other.note("farewell", made.leave(key("london"), NOW_S).raw, NOW_S)
    assert other.level("london") is TrustLevel.LEFT
    assert refusal(other.admit, card("london"), NOW_S, approve=True) is TrustRefusal.STALE
    made.renew(renewal(made, issued_s=NOW_S, contact="back again"), key("london"))
    assert other.admit(made.own.card, NOW_S, approve=False) is TrustLevel.PENDING


def test_a_retired_key_can_not_say_farewell():
    made = book("paris")
    for raw in (
        card("paris", ["paris", "p2"], serial=200).raw,
        card("paris", ["p2"], serial=300, past=(key("paris").public,)).raw,
    ):
        made.note("card", raw, NOW_S)
    assert (
        refusal(made.note, "farewell", farewell("paris", 400), NOW_S) is TrustRefusal.BAD_SIGNATURE
    )
    made.note("revocations", sign(REVOKED, key("paris")).raw, NOW_S)
    assert made.revoked_by("paris") == REVOKED.tokens


# --- expelling -----------------------------------------------------------------------------------


def test_whom_we_expel_is_out_whatever_others_say():
    made = book("paris", "lyon", "oslo", follow=Follow.ANY)
    made.trust("paris", [permit(Verb.SEND)])
    said = made.expel("paris", "does not pay", key("london"), NOW_S)
    made.note("expulsion", expulsion("lyon", "paris", stands=False), NOW_S)
    assert made.level("paris") is TrustLevel.EXPELLED
    assert made.keys_of("paris") == made.lasting_keys_of("paris") == ()
    assert "paris" not in made.pins()
    assert made.decide(asked("paris")).why is PermissionReason.EXPELLED
    assert refusal(made.admit, card("paris"), NOW_S, approve=True) is TrustRefusal.EXPELLED
    with pytest.raises(BookError, match="end the expulsion first"):
        made.approve("paris", made.find("paris").fingerprint)
    other = TrustBook(card("lyon"), Follow.ANY)
    other.admit(card("london"), NOW_S, approve=True)
    assert other.note("expulsion", said.raw, NOW_S) is DeclarationOrder.NEWER
    assert other.level("paris") is TrustLevel.EXPELLED


def test_an_expulsion_that_was_taken_back_leaves_a_stranger():
    made = book("paris")
    made.expel("paris", "", key("london"), NOW_S)
    back = made.keep("paris", "it paid", key("london"), NOW_S)
    assert back.content.serial == int(NOW_S) + 1
    assert made.level("paris") is TrustLevel.KNOWN
    assert made.members["paris"].rules == frozenset()


@pytest.mark.parametrize(
    ("follow", "accusers", "expelled"),
    [
        (Follow.ANY, 1, True),
        (Follow.TWO, 1, False),
        (Follow.TWO, 2, True),
        (Follow.OURS, 3, False),
    ],
)
def test_how_many_must_say_so(follow, accusers, expelled):
    made = book("paris", "a-site", "b-site", "c-site", follow=follow)
    for by in ("a-site", "b-site", "c-site")[:accusers]:
        made.note("expulsion", expulsion(by, "paris"), NOW_S)
    assert (made.level("paris") is TrustLevel.EXPELLED) is expelled
    made.keep("paris", "we know better", key("london"), NOW_S)
    assert made.level("paris") is TrustLevel.APPROVED


def test_only_approved_sites_are_heard_and_only_for_themselves():
    made = book("paris", "lyon", known=["oslo"], follow=Follow.ANY)
    word = expulsion("oslo", "paris")
    assert refusal(made.note, "expulsion", word, NOW_S) is TrustRefusal.UNKNOWN_SITE
    content = Expulsion(FEDERATION, "lyon", "paris", True, "", 1, NOW_S)
    forged = sign(content, key("oslo")).raw
    assert refusal(made.note, "expulsion", forged, NOW_S) is TrustRefusal.BAD_SIGNATURE
    made.expel("lyon", "", key("london"), NOW_S)
    assert refusal(made.note, "expulsion", expulsion("lyon", "paris"), NOW_S) is (
        TrustRefusal.UNKNOWN_SITE
    )
    assert made.level("paris") is TrustLevel.APPROVED


def test_our_own_word_comes_back_to_a_disk_that_was_set_back():
    said = book("lyon").expel("lyon", "two tongues", key("london"), NOW_S)
    made = book("paris", "lyon", follow=Follow.ANY)
    made.note("expulsion", expulsion("lyon", "paris"), NOW_S)
    assert made.level("paris") is TrustLevel.EXPELLED
    made.note("expulsion", said.raw, NOW_S)
    assert made.level("lyon") is TrustLevel.EXPELLED
    assert made.level("paris") is TrustLevel.APPROVED


def test_a_site_does_not_accuse_itself_and_we_are_never_expelled_here():
    made = book("paris", follow=Follow.ANY)
    made.note("expulsion", expulsion("paris", "paris"), NOW_S)
    made.note("expulsion", expulsion("paris", "london"), NOW_S)
    assert made.level("paris") is TrustLevel.APPROVED
    assert made.level("london") is TrustLevel.APPROVED
    with pytest.raises(BookError, match="expel itself"):
        made.expel("london", "", key("london"), NOW_S)


def test_two_tongues_about_a_third_are_evidence():
    made = book("paris", "lyon")
    made.note("expulsion", expulsion("lyon", "paris", serial=5), NOW_S)
    other = expulsion("lyon", "paris", stands=False, serial=5)
    assert refusal(made.note, "expulsion", other, NOW_S) is TrustRefusal.EQUIVOCATION
    assert made.level("lyon") is TrustLevel.PENDING
    assert len(made.members["lyon"].evidence) == 2


def test_one_site_speaks_of_so_many_and_no_more(monkeypatch):
    monkeypatch.setattr("gateway.trust.expulsions.SPOKEN_OF_MAX", 2)
    made = book("lyon")
    for at in range(2):
        made.note("expulsion", expulsion("lyon", f"site-{at}"), NOW_S)
    assert refusal(made.note, "expulsion", expulsion("lyon", "site-9"), NOW_S) is TrustRefusal.FULL
    made.note("expulsion", expulsion("lyon", "site-0", stands=False, serial=2), NOW_S)


NEWS = [
    ("expulsion", expulsion("a-site", "b-site")),
    ("expulsion", expulsion("b-site", "a-site")),
    ("expulsion", expulsion("c-site", "a-site")),
    ("expulsion", expulsion("c-site", "a-site", stands=False, serial=2)),
    ("card", card("b-site", ["b-site", "b-2"], serial=150).raw),
    ("farewell", farewell("c-site", 120)),
    ("card", card("c-site", serial=200).raw),
]


@pytest.mark.parametrize("follow", Follow)
@settings(max_examples=60)
@given(way=st.permutations(NEWS), twice=st.lists(st.sampled_from(NEWS), max_size=4))
def test_the_order_of_news_does_not_matter(follow, way, twice):
    """Words of c-site, which leaves, come from when it was still heard, or were there before."""
    books = []
    for news in (NEWS, [*way, *twice]):
        made = book("a-site", "b-site", "c-site", follow=follow)
        for kind, raw in sorted(news, key=lambda each: each[0] != "expulsion"):
            made.note(kind, raw, NOW_S)
        books.append({site: (made.level(site), made.keys_of(site)) for site in made.members})
    assert books[0] == books[1]


def test_of_two_that_expel_each_other_neither_gains_by_being_first():
    words = [expulsion("a-site", "b-site"), expulsion("b-site", "a-site")]
    for way in itertools.permutations(words):
        made = book("a-site", "b-site", follow=Follow.ANY)
        for raw in way:
            made.note("expulsion", raw, NOW_S)
        assert made.level("a-site") is made.level("b-site") is TrustLevel.EXPELLED


# --- what a site may do --------------------------------------------------------------------------


def test_nothing_is_allowed_by_approval_alone():
    made = book("paris")
    for verb in Verb:
        assert made.decide(asked("paris", verb)).why is PermissionReason.NOT_PERMITTED
    assert not made.accepts_pickles(["paris"])


def test_rules_are_for_one_site_or_for_all_that_are_approved():
    made = book("paris", "lyon", known=["oslo"])
    made.trust("paris", [permit(Verb.SEND, slots_max=5)])
    made.trust(ANY, [permit(Verb.RUN), forbid(Verb.SEND, projects=frozenset({"treasury"}))])
    assert made.decide(asked("paris", slots=5)).is_yes
    assert made.decide(asked("paris", slots=6)).why is PermissionReason.OVER_SLOTS
    assert made.decide(asked("paris", project="treasury")).why is PermissionReason.FORBIDDEN
    assert made.decide(asked("lyon")).why is PermissionReason.NOT_PERMITTED
    assert made.decide(asked("lyon", Verb.RUN)).is_yes
    assert made.decide(asked("oslo", Verb.RUN)).why is PermissionReason.NOT_APPROVED
    with pytest.raises(BookError, match="not found"):
        made.trust("rome", [])


def test_relayed_work_is_judged_by_its_origin_too():
    made = book("paris", "lyon", known=["oslo"])
    made.trust("paris", [permit(Verb.SEND, sites=frozenset({ITSELF, ANY}))])
    assert made.decide(asked("paris", other="oslo")).is_yes
    assert made.decide(asked("paris", other="rome")).why is PermissionReason.ORIGIN_UNKNOWN
    made.trust("lyon", [forbid(Verb.SEND)])
    assert made.decide(asked("paris", other="lyon")).why is PermissionReason.FORBIDDEN
    made.note("farewell", farewell("oslo", 500), NOW_S)
    assert made.decide(asked("paris", other="oslo")).why is PermissionReason.ORIGIN_UNKNOWN
    made.expel("lyon", "", key("london"), NOW_S)
    assert made.decide(asked("paris", other="lyon")).why is PermissionReason.EXPELLED


def test_pickles_are_taken_when_every_site_on_their_way_is_trusted():
    made = book("paris", "lyon")
    made.trust_results("paris", pickles=True)
    assert made.accepts_pickles(["london", "paris"])
    assert not made.accepts_pickles(["paris", "lyon"])
    made.expel("paris", "", key("london"), NOW_S)
    assert not made.accepts_pickles(["paris"])


# --- tokens --------------------------------------------------------------------------------------


def test_revoked_tokens_are_told_and_forgotten_when_they_have_expired():
    made, other = book(), TrustBook(card("paris"))
    other.admit(card("london"), NOW_S, approve=True)
    made.revoke({"a" * 16: NOW_S + 10}, key("london"), NOW_S)
    told = made.revoke({"b" * 16: NOW_S + 1000}, key("london"), NOW_S + 5)
    assert set(made.revoked_by("london")) == {"a" * 16, "b" * 16}
    other.note("revocations", told.raw, NOW_S + 5)
    assert set(other.revoked_by("london")) == {"a" * 16, "b" * 16}
    later = made.revoke({"c" * 16: NOW_S + 1000}, key("london"), NOW_S + 50)
    assert later.content.tokens == ("b" * 16, "c" * 16)
    assert other.note("revocations", later.raw, NOW_S + 50) is DeclarationOrder.NEWER
    assert other.note("revocations", told.raw, NOW_S + 50) is DeclarationOrder.OLDER
    assert other.revoked_by("nobody") == ()


def test_another_sites_users_come_only_where_they_are_welcome():
    made = book("paris", known=["lyon"])
    assert not made.welcomes("paris")
    made.welcome("paris", users=True)
    made.welcome("lyon", users=True)
    assert made.welcomes("paris")
    assert not made.welcomes("lyon")


def test_nobody_revokes_for_another():
    made = book("paris", "lyon")
    forged = sign(Revocations(FEDERATION, "paris", (), 1, NOW_S), key("lyon")).raw
    assert refusal(made.note, "revocations", forged, NOW_S) is TrustRefusal.BAD_SIGNATURE


# --- on disk -------------------------------------------------------------------------------------


def full_book():
    made = book("paris", "lyon", "oslo", known=["rome"])
    made.trust("paris", [permit(Verb.SEND, slots_max=5), forbid(Verb.RUN)])
    made.trust(ANY, [permit(Verb.RUN, budget_nanos=5, currency="EUR")])
    made.trust_results("paris", pickles=True)
    made.welcome("paris", users=True)
    made.note("card", card("paris", ["paris", "p2"], serial=200).raw, NOW_S)
    made.note("card", card("paris", ["p2"], serial=300).raw, NOW_S)
    made.note("expulsion", expulsion("lyon", "rome"), NOW_S)
    made.note("farewell", farewell("oslo", 500), NOW_S)
    made.expel("lyon", "two tongues", key("london"), NOW_S)
    made.revoke({"a" * 16: NOW_S + 10}, key("london"), NOW_S)
    made.welcome("rome", users=True)
    made.await_keys("paris", fingerprint("paris", key("other-key").public))
    refusal(made.note, "card", card("rome", contact="elsewhere").raw, NOW_S)
    invitations = Invitations()
    own = made.own.card.content
    invitations.make(own, own.leaves[0], "tls+tcp://gw:1", b"s" * 16, NOW_S, approve=True)
    return made, invitations


def test_the_file_holds_all_of_it(tmp_path):
    made, invitations = full_book()
    path = tmp_path / "trust.json"
    book_file.save(path, made, invitations)
    again, invitations_again = book_file.load(path)
    assert book_file.to_plain(again, invitations_again) == book_file.to_plain(made, invitations)
    assert list(again.declarations()) == list(made.declarations())
    for site in ("london", *made.members):
        assert again.level(site) is made.level(site)
        assert again.welcomes(site) is made.welcomes(site)
        assert again.accepts_pickles([site]) is made.accepts_pickles([site])
        assert again.lasting_keys_of(site) == made.lasting_keys_of(site)
    assert invitations_again.issued == invitations.issued
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_can_be_read_by_people(tmp_path):
    made, invitations = full_book()
    book_file.save(tmp_path / "trust.json", made, invitations)
    plain = json.loads((tmp_path / "trust.json").read_text())
    assert plain["sites"]["paris"]["fingerprint"] == made.find("paris").fingerprint
    assert plain["sites"]["paris"]["level"] == "approved"
    assert plain["sites"]["paris"]["addresses"] == ["tls+tcp://paris.example:7462"]


def test_a_file_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "trust.json"
    book_file.save(path, *full_book())
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="is readable by other users"):
        book_file.load(path)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda plain: "not json", "JSONDecodeError"),
        (lambda plain: [], "TypeError"),
        (lambda plain: {**plain, "version": 2}, "newer gridfed"),
        (lambda plain: {**plain, "sites": {"lyon": plain["sites"]["paris"]}}, "names site 'paris'"),
        (lambda plain: {**plain, "own": {**plain["own"], "card": "AAAA"}}, "ProtocolError"),
        (lambda plain: {**plain, "own": {**plain["own"], "card": "?"}}, "Error"),
        (lambda plain: {**plain, "rules": [{"rule": "allow"}]}, "permit"),
        (lambda plain: {key: plain[key] for key in plain if key != "revoked"}, "'revoked'"),
    ],
)
def test_a_damaged_file_is_told(tmp_path, spoil, why):
    path = tmp_path / "trust.json"
    book_file.save(path, *full_book())
    spoilt = spoil(json.loads(path.read_text()))
    path.write_text(spoilt if isinstance(spoilt, str) else json.dumps(spoilt))
    with pytest.raises(TrustFileError, match=why):
        book_file.load(path)
