"""Invitations and the talk of two gateways over one: pending on both sides, or a clear refusal."""

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.site_keys import FEDERATION, NOW_S, card, key, leaf

from federation.errors import ProtocolError
from federation.signed.identity import TrustRefusal, Untrusted, fingerprint, to_text
from gateway.trust.book import BookError, TrustBook
from gateway.trust.invitations import (
    PREFIX,
    REMEMBERED_S,
    VALID_S,
    Invitations,
    read_invitation,
    write_invitation,
)
from gateway.trust.joining import JoinApplicant, Joined, JoinReception, enter, reject
from gateway.trust.standing import TrustLevel

ADDRESS = "tls+tcp://gw.london.example:7463"
SECRET = b"0123456789abcdef"


class Inviter:
    """London, which invites."""

    def __init__(self, **details):
        self.book = TrustBook(card("london"))
        self.invitations = Invitations()
        self.invite(**details)

    def invite(self, secret=SECRET, **details):
        own = self.book.own.card.content
        made = self.invitations.make(own, own.leaves[0], ADDRESS, secret, NOW_S, **details)
        self.text = write_invitation(made)
        return made

    def receive(self):
        return JoinReception(self.book, self.invitations, b"i" * 16)


def applicant(text, site="paris", now_s=NOW_S, signers=None):
    return JoinApplicant(read_invitation(text, now_s), card(site, signers), b"j" * 16)


def join(reception, joiner, now_s=NOW_S):
    """Both sides to the end; a refusal travels as it would."""
    frame = joiner.apply()
    while True:
        try:
            answer = reception.receive(frame, now_s)
        except ProtocolError as error:
            answer = reject(error)
        frame = joiner.receive(answer)
        if isinstance(frame, Joined):
            return frame


def refusal(call, *args, **details):
    with pytest.raises(Untrusted) as caught:
        call(*args, **details)
    return caught.value.refusal


# --- the text ------------------------------------------------------------------------------------


def test_an_invitation_survives_being_copied():
    inviter = Inviter()
    text = inviter.text
    assert len(text) < 500
    wrapped = "\n".join(text[at : at + 60] for at in range(0, len(text), 60))
    read = read_invitation(wrapped, NOW_S)
    assert (read.federation, read.site, read.address) == (FEDERATION, "london", ADDRESS)
    assert read.key == key("london").public
    assert read.expires_s == NOW_S + VALID_S
    assert read.id in inviter.invitations.issued


def test_an_invitation_does_not_show_its_secret():
    inviter = Inviter()
    made = read_invitation(inviter.text, NOW_S)
    assert repr(SECRET) not in repr(made) + repr(inviter.invitations.issued)
    assert SECRET.hex()[:16] != made.id


@settings(max_examples=200)
@given(st.data())
def test_an_altered_invitation_is_told_as_such(data):
    text = Inviter().text
    at = data.draw(st.integers(0, len(text) - 1))
    spoilt = text[:at] + data.draw(st.sampled_from("abcxyz234 ")) + text[at + 1 :]
    if "".join(spoilt.split()) != text:
        assert refusal(read_invitation, spoilt, NOW_S) is TrustRefusal.ALTERED


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda text: text[:-4], "has a wrong or missing character"),
        (lambda text: text[:-1], "has a wrong or missing character"),
        (lambda text: text[4:], f"must begin with {PREFIX}_"),
    ],
)
def test_an_invitation_that_was_cut_says_to_copy_it_again(change, fault):
    with pytest.raises(Untrusted) as caught:
        read_invitation(change(Inviter().text), NOW_S)
    said = f"the invitation was not copied whole ({fault}): copy the line again"
    assert caught.value.details == said


@given(st.binary(max_size=100), st.text(max_size=40))
def test_noise_is_no_invitation(payload, other):
    for text in (to_text(PREFIX, payload), other):
        assert refusal(read_invitation, text, NOW_S) is TrustRefusal.ALTERED


def test_an_expired_invitation_is_told_before_anybody_is_dialled():
    assert refusal(read_invitation, Inviter(valid_s=60).text, NOW_S + 60) is TrustRefusal.EXPIRED


# --- joining -------------------------------------------------------------------------------------


def test_each_is_pending_with_the_other_until_it_is_approved():
    inviter, paris = Inviter(), TrustBook(card("paris"))
    joined = join(inviter.receive(), applicant(inviter.text))
    assert joined.level is TrustLevel.PENDING
    assert inviter.book.level("paris") is TrustLevel.PENDING
    assert paris.admit(joined.card, NOW_S, approve=False) is TrustLevel.PENDING
    inviter.book.approve("paris", fingerprint("paris", key("paris").public))
    paris.approve("london", fingerprint("london", key("london").public))
    assert inviter.book.level("paris") is paris.level("london") is TrustLevel.APPROVED
    assert set(inviter.book.pins()) == set(paris.pins()) == {"london", "paris"}


def test_a_laboratorys_invitation_approves_by_itself():
    inviter = Inviter(approve=True)
    assert join(inviter.receive(), applicant(inviter.text)).level is TrustLevel.APPROVED
    assert inviter.book.level("paris") is TrustLevel.APPROVED


def test_the_reception_says_whom_it_admitted():
    inviter = Inviter()
    reception = inviter.receive()
    join(reception, applicant(inviter.text))
    assert reception.admitted == "paris"


def test_an_invitation_is_for_one_site():
    inviter = Inviter()
    join(inviter.receive(), applicant(inviter.text))
    with pytest.raises(Untrusted, match="site 'paris' has used this invitation already") as caught:
        join(inviter.receive(), applicant(inviter.text, "lyon"))
    assert caught.value.refusal is TrustRefusal.USED
    assert inviter.book.level("lyon") is None


def test_who_lost_the_answer_may_come_again():
    inviter = Inviter()
    for _ in range(2):
        assert join(inviter.receive(), applicant(inviter.text)).level is TrustLevel.PENDING
    late = applicant(inviter.text)
    with pytest.raises(Untrusted, match="expired: the inviter refused: the invitation has expired"):
        join(inviter.receive(), late, NOW_S + VALID_S)


def test_of_two_at_once_one_comes_in():
    inviter = Inviter()
    first, second = inviter.receive(), inviter.receive()
    paris, lyon = applicant(inviter.text), applicant(inviter.text, "lyon")
    proofs = [
        joiner.receive(reception.receive(joiner.apply(), NOW_S))
        for reception, joiner in ((first, paris), (second, lyon))
    ]
    second.receive(proofs[1], NOW_S)
    assert refusal(first.receive, proofs[0], NOW_S) is TrustRefusal.USED
    assert inviter.book.level("paris") is None


def test_an_invitation_that_was_withdrawn_or_never_made_is_refused():
    inviter = Inviter()
    inviter.invitations.withdraw(read_invitation(inviter.text, NOW_S).id)
    assert (
        refusal(join, inviter.receive(), applicant(inviter.text)) is TrustRefusal.UNKNOWN_INVITATION
    )
    with pytest.raises(BookError, match="not found"):
        inviter.invitations.withdraw("0" * 16)


def test_who_does_not_know_the_secret_is_refused():
    inviter = Inviter()
    joiner = applicant(inviter.text)
    reception = inviter.receive()
    joiner.receive(reception.receive(joiner.apply(), NOW_S))
    guess = msgpack.packb(["proof", msgpack.packb({"mac": bytes(32)})])
    assert refusal(reception.receive, guess, NOW_S) is TrustRefusal.WRONG_SECRET
    assert inviter.book.level("paris") is None
    assert next(iter(inviter.invitations))[1].used_by == ""


def test_a_card_can_not_be_exchanged_on_the_way():
    inviter = Inviter()
    reception, joiner, thief = inviter.receive(), applicant(inviter.text), card("lyon")
    kind, body = msgpack.unpackb(joiner.apply())
    swapped = msgpack.packb({**msgpack.unpackb(body), "card": thief.raw})
    proof = joiner.receive(reception.receive(msgpack.packb([kind, swapped]), NOW_S))
    assert refusal(reception.receive, proof, NOW_S) is TrustRefusal.WRONG_SECRET


def test_a_proof_is_worth_nothing_on_another_connection():
    inviter = Inviter()
    first, second = inviter.receive(), JoinReception(inviter.book, inviter.invitations, b"x" * 16)
    joiner = applicant(inviter.text)
    proof = joiner.receive(first.receive(joiner.apply(), NOW_S))
    second.receive(joiner.apply(), NOW_S)
    assert refusal(second.receive, proof, NOW_S) is TrustRefusal.WRONG_SECRET


def test_the_inviter_must_know_the_secret_too():
    inviter = Inviter()
    joiner = applicant(inviter.text)
    joiner.receive(inviter.receive().receive(joiner.apply(), NOW_S))
    lie = msgpack.packb(["acceptance", msgpack.packb({"mac": bytes(32), "level": "approved"})])
    assert refusal(joiner.receive, lie) is TrustRefusal.WRONG_SECRET


def test_the_joiners_own_proof_does_not_prove_the_inviter():
    inviter = Inviter()
    joiner = applicant(inviter.text)
    proof = joiner.receive(inviter.receive().receive(joiner.apply(), NOW_S))
    mac = msgpack.unpackb(msgpack.unpackb(proof)[1])["mac"]
    echo = msgpack.packb(["acceptance", msgpack.packb({"mac": mac, "level": "approved"})])
    assert refusal(joiner.receive, echo) is TrustRefusal.WRONG_SECRET


def presentation(shown):
    return msgpack.packb(["presentation", msgpack.packb({"card": shown.raw, "nonce": b"i" * 16})])


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (card("london", ["other-key"]), TrustRefusal.BAD_SIGNATURE),
        (card("lyon"), TrustRefusal.WRONG_SITE),
        (card("london", federation="others-1"), TrustRefusal.WRONG_SITE),
        (card("london", leaves=(leaf("london", 5).certificate,)), TrustRefusal.BAD_CERTIFICATE),
    ],
)
def test_the_inviter_must_be_whom_the_invitation_names(shown, why):
    joiner = applicant(Inviter().text)
    joiner.apply()
    assert refusal(joiner.receive, presentation(shown)) is why


def test_the_leaf_is_compared_before_anything_is_said():
    joiner = applicant(Inviter().text)
    joiner.check_leaf(leaf("london").certificate)
    assert refusal(joiner.check_leaf, leaf("london", 5).certificate) is TrustRefusal.BAD_CERTIFICATE


def test_a_name_that_is_taken_is_refused_and_told():
    inviter = Inviter(approve=True)
    join(inviter.receive(), applicant(inviter.text))
    inviter.invite(b"another secret!!")
    impostor = applicant(inviter.text, signers=["thief"])
    with pytest.raises(Untrusted, match="not-successor: the inviter refused"):
        join(inviter.receive(), impostor)
    assert inviter.book.keys_of("paris") == (key("paris").public,)


def test_a_card_of_another_federation_is_refused():
    inviter = Inviter()
    foreign = JoinApplicant(
        read_invitation(inviter.text, NOW_S), card("paris", federation="others-1"), b"j" * 16
    )
    assert refusal(join, inviter.receive(), foreign) is TrustRefusal.WRONG_FEDERATION


def test_a_site_that_is_alone_moves_to_the_federation_that_invites_it():
    invitation = read_invitation(Inviter().text, NOW_S)
    alone = TrustBook(card("paris", federation="paris-own"))
    moved = enter(alone, invitation, key("paris"), NOW_S)
    assert moved.federation == FEDERATION
    assert moved.own.card.content.serial == int(NOW_S)
    assert moved.own.card.content.leaves == alone.own.card.content.leaves
    assert enter(moved, invitation, key("paris"), NOW_S) is moved
    alone.note("card", card("lyon", federation="paris-own").raw, NOW_S)
    alone.approve("lyon", alone.find("lyon").fingerprint)
    with pytest.raises(BookError, match="leave it first"):
        enter(alone, invitation, key("paris"), NOW_S)


def test_a_site_that_has_left_comes_back_with_a_newer_card_and_an_empty_book():
    inviter = Inviter()
    invitation = read_invitation(inviter.text, NOW_S)
    paris = TrustBook(card("paris"))
    paris.admit(card("london"), NOW_S, approve=True)
    inviter.book.admit(paris.own.card, NOW_S, approve=True)
    inviter.book.note("farewell", paris.leave(key("paris"), NOW_S).raw, NOW_S)
    again = enter(paris, invitation, key("paris"), NOW_S)
    assert again.members == {}
    joined = join(inviter.receive(), JoinApplicant(invitation, again.own.card, b"j" * 16))
    assert joined.level is TrustLevel.PENDING


def test_a_site_that_came_back_and_hears_of_its_farewell_has_not_left_again():
    inviter = Inviter()
    invitation = read_invitation(inviter.text, NOW_S)
    paris = TrustBook(card("paris"))
    farewell = paris.leave(key("paris"), NOW_S)
    assert paris.has_left
    again = enter(paris, invitation, key("paris"), NOW_S)
    again.admit(card("london"), NOW_S, approve=True)
    again.note("farewell", farewell.raw, NOW_S)
    assert not again.has_left
    assert enter(again, invitation, key("paris"), NOW_S) is again


# --- bad input -----------------------------------------------------------------------------------


def test_messages_out_of_turn_are_refused():
    inviter = Inviter()
    reception, joiner = inviter.receive(), applicant(inviter.text)
    application = joiner.apply()
    presented = reception.receive(application, NOW_S)
    for frame in (application, presented):
        with pytest.raises(ProtocolError, match="out of turn"):
            reception.receive(frame, NOW_S)
    proof = joiner.receive(presented)
    accepted = reception.receive(proof, NOW_S)
    with pytest.raises(ProtocolError, match="out of turn"):
        reception.receive(proof, NOW_S)
    with pytest.raises(ProtocolError, match="out of turn"):
        joiner.receive(presented)
    assert isinstance(joiner.receive(accepted), Joined)


@given(st.binary(max_size=200))
def test_noise_breaks_neither_side(data):
    inviter = Inviter()
    for frame in (data, msgpack.packb(["application", data]), msgpack.packb(["rejection", data])):
        with pytest.raises(ProtocolError):
            inviter.receive().receive(frame, NOW_S)
        with pytest.raises(ProtocolError):
            applicant(inviter.text).receive(frame)


def test_a_refusal_prints_nothing_that_does_not_print():
    told = applicant(Inviter().text)
    with pytest.raises(ProtocolError, match=r"a\\x1bb") as caught:
        told.receive(reject(ProtocolError("a\x1bb" + "x" * 1000)))
    assert len(str(caught.value)) < 500


# --- what is remembered --------------------------------------------------------------------------


def test_old_invitations_are_forgotten_in_time():
    inviter = Inviter()
    own = inviter.book.own.card.content
    later_s = NOW_S + VALID_S + REMEMBERED_S + 1
    inviter.invitations.make(own, own.leaves[0], ADDRESS, b"s" * 16, later_s)
    assert len(list(inviter.invitations)) == 1


def test_invitations_are_bounded(monkeypatch):
    monkeypatch.setattr("gateway.trust.invitations.INVITATIONS_MAX", 1)
    with pytest.raises(BookError, match="withdraw some"):
        Inviter().invite(b"another secret!!")
