"""From two machines to a federation: init, invite, join, approve, trust, work, rotate, leave."""

import dataclasses

import pytest
from support.pure.site_keys import NOW_S

from federation.signed import grants
from federation.signed.declarations import DeclarationOrder, sign
from federation.signed.envelopes import ALL, Sealer, Verifier
from federation.signed.identity import Meeting, PipeSide, TrustRefusal, Untrusted
from federation.signed.tokens import Scope, UserToken, check_token, write_token
from gateway.config.federation import OVERLAP_S, SPREAD_S
from gateway.trust import book_file
from gateway.trust.book import TrustBook
from gateway.trust.invitations import Invitations, read_invitation, write_invitation
from gateway.trust.joining import JoinApplicant, Joined, JoinReception, enter
from gateway.trust.keys import (
    Rotation,
    add_next,
    create_keys,
    load_keys,
    make_generation,
    next_boot,
    promote_next,
    rotation,
)
from gateway.trust.permissions import PermissionRequest, Verb, permit
from gateway.trust.standing import TrustLevel


class Site:
    """The command line and the gateway at work on one site's folder."""

    def __init__(self, folder, name):
        self.folder, self.name, self.now_s = folder, name, NOW_S
        self.addresses = (f"tls+tcp://{name}.example:7462",)
        create_keys(folder, make_generation(name, [f"{name}.example"], NOW_S))
        ring = load_keys(folder)
        card = ring.card(f"{name}-0a1b", name, self.addresses, "ops", NOW_S)
        self.save(TrustBook(sign(card, ring.current.key)), Invitations())
        self.start()

    def save(self, book, invitations):
        book_file.save(self.folder / "trust.json", book, invitations)

    def start(self):
        """A gateway starts: keys, book and boot from the disk."""
        self.book, self.invitations = book_file.load(self.folder / "trust.json")
        self.boot = next_boot(self.folder, self.now_s)
        self.verifier = Verifier(self.book)
        self.sealer = Sealer(self.book.federation, self.name, self.boot, self.current.key)
        self.renew()

    def restart(self):
        """All decisions have been saved, as they must be each time."""
        self.save(self.book, self.invitations)
        self.start()

    @property
    def ring(self):
        return load_keys(self.folder)

    @property
    def current(self):
        return self.ring.current

    @property
    def active(self):
        return self.ring.active(stage_of(self))

    def renew(self, **details):
        ring = self.ring
        card = ring.card(self.book.federation, self.name, self.addresses, "ops", self.now_s)
        if self.book.renew(card, ring.current.key, **details):
            self.save(self.book, self.invitations)
        self.sealer.key = self.active.key

    def hears(self, other):
        """Take the entries of another's book, as a full exchange does."""
        for site in (other.name, *other.book.members):
            known = self.book.own if site == self.name else self.book.members.get(site)
            serial = known.card.content.serial if known else -1
            for raw in other.book.cards_since(site, serial):
                self.book.note("card", raw, self.now_s)
        for kind, raw in other.book.declarations():
            self.book.note(kind, raw, self.now_s)


def stage_of(site):
    """How far a site's rotation is, which all have acknowledged as soon as it was spread."""
    card = site.book.own.card.content
    switched_at_s = card.issued_s + SPREAD_S
    return rotation(card, switched_at_s if site.now_s >= switched_at_s else None, site.now_s)


def join(inviter, joiner, *, approve=False):
    own = inviter.book.own.card.content
    made = inviter.invitations.make(
        own, own.leaves[0], inviter.addresses[0], b"s" * 16, NOW_S, approve=approve
    )
    invitation = read_invitation(write_invitation(made), NOW_S)
    book = enter(joiner.book, invitation, joiner.current.key, NOW_S)
    joiner.save(book, joiner.invitations)
    joiner.start()
    applicant = JoinApplicant(invitation, joiner.book.own.card, b"j" * 16)
    applicant.check_leaf(inviter.current.leaf.certificate)
    reception = JoinReception(inviter.book, inviter.invitations, b"i" * 16)
    frame = applicant.apply()
    while not isinstance(frame, Joined):
        frame = applicant.receive(reception.receive(frame, NOW_S))
    joiner.book.admit(frame.card, NOW_S, approve=approve)


def approve(one, other):
    for here, there in ((one, other), (other, one)):
        here.book.approve(there.name, there.book.own.fingerprint)


@pytest.fixture
def sites(tmp_path):
    london, paris = Site(tmp_path / "london", "london"), Site(tmp_path / "paris", "paris")
    join(london, paris)
    approve(london, paris)
    return london, paris


def meet(dialler, listener):
    """The hello of two gateways."""
    meeting = Meeting(
        dialler.book.federation,
        dialler.name,
        listener.name,
        dialler.boot,
        listener.boot,
        b"d" * 16,
        b"l" * 16,
    )
    proofs = [
        meeting.sign(dialler.active.key, PipeSide.DIALLER),
        meeting.sign(listener.active.key, PipeSide.LISTENER),
    ]
    meeting.check(listener.book.keys_of(dialler.name), PipeSide.DIALLER, proofs[0])
    meeting.check(dialler.book.keys_of(listener.name), PipeSide.LISTENER, proofs[1])
    listener.verifier.meet(dialler.name, dialler.boot)
    dialler.verifier.meet(listener.name, listener.boot)


def test_two_sites_work_together(sites):
    london, paris = sites
    assert paris.book.federation == london.book.federation == "london-0a1b"
    meet(paris, london)
    london.book.trust("paris", [permit(Verb.SEND, slots_max=100)])
    asked = PermissionRequest(Verb.SEND, "paris", "cpu", "risk", "public", "paris", 80, 0, "EUR")
    assert london.book.decide(asked).is_yes
    assert not paris.book.decide(dataclasses.replace(asked, site="london", other="london")).is_yes
    purpose = grants.Purpose(
        paris.book.federation, "paris", "ada", "risk", "job-1", b"f" * 32, "EUR"
    )
    bounds = grants.GrantBounds("london", "c-1", 10**9, NOW_S + 600, 0)
    raw = paris.sealer.seal(
        "contract", "london", grants.issue(purpose, bounds, paris.active.key), NOW_S
    )
    opened = london.verifier.open(raw, NOW_S + 1)
    grant = grants.check(opened.body, opened.header.source, london.book, NOW_S + 1)
    assert (grant.purpose.user, grant.path) == ("ada", ("paris",))


def test_a_third_is_known_by_hearsay_and_approved_without_an_invitation(sites, tmp_path):
    london, paris = sites
    lyon = Site(tmp_path / "lyon", "lyon")
    join(paris, lyon, approve=True)
    london.hears(paris)
    lyon.hears(paris)
    assert london.book.level("lyon") is TrustLevel.KNOWN
    assert lyon.book.level("london") is TrustLevel.KNOWN
    approve(london, lyon)
    meet(lyon, london)


def test_keys_rotate_while_messages_are_under_way(sites):
    london, paris = sites
    user = UserToken(
        london.book.federation, "london", "0" * 16, "ada", None, frozenset({"submit"}),
        frozenset({"london"}), NOW_S, NOW_S + 86400,
    )  # fmt: skip
    token = write_token(user, london.active.key)
    old, following = london.current, make_generation("london", [], NOW_S)
    stages = []

    def step(after_s):
        london.now_s = paris.now_s = london.now_s + after_s
        under_way = london.sealer.seal("advert", ALL, b"", london.now_s)
        stage = stage_of(london)
        if stage is Rotation.DUE:
            promote_next(london.folder)
        london.renew()
        paris.hears(london)
        stages.append((stage, london.active.leaf == following.leaf))
        paris.verifier.open(under_way, paris.now_s)
        paris.verifier.open(london.sealer.seal("advert", ALL, b"", london.now_s), paris.now_s)
        meet(london, paris)

    step(0)
    add_next(london.folder, following)
    step(1)
    assert set(paris.book.pins()["london"]) == {old.leaf.certificate, following.leaf.certificate}
    step(SPREAD_S)
    step(OVERLAP_S)
    assert stages == [
        (Rotation.NONE, False),
        (Rotation.NONE, False),
        (Rotation.SWITCHED, True),
        (Rotation.DUE, True),
    ]
    assert paris.book.keys_of("london") == (following.key.public,)
    assert paris.book.pins()["london"] == (following.leaf.certificate,)
    assert paris.book.level("london") is TrustLevel.APPROVED
    assert check_token(token, london.book, london.now_s).allows(Scope.SUBMIT)
    thief = Sealer(london.book.federation, "london", london.boot + 1, old.key)
    with pytest.raises(Untrusted) as caught:
        paris.verifier.open(thief.seal("advert", ALL, b"", paris.now_s), paris.now_s)
    assert caught.value.refusal is TrustRefusal.BAD_SIGNATURE


def test_a_crash_in_a_rotation_is_made_good_at_the_next_start(sites):
    london, paris = sites
    add_next(london.folder, make_generation("london", [], NOW_S))
    london.restart()  # it had stored the keys, and died before it issued the card
    assert len(london.book.own.card.content.keys) == 2
    paris.hears(london)
    promote_next(london.folder)
    london.now_s = paris.now_s = NOW_S + SPREAD_S + OVERLAP_S
    london.restart()  # likewise
    assert london.book.own.card.content.keys == (london.current.key.public,)
    paris.hears(london)
    meet(london, paris)


def test_a_gateway_that_restarts_is_met_anew_and_its_old_life_is_over(sites):
    london, paris = sites
    meet(london, paris)
    old = london.sealer.seal("quote", "paris", b"", NOW_S)
    london.restart()
    meet(london, paris)
    with pytest.raises(Untrusted, match="old-boot"):
        paris.verifier.open(old, NOW_S)
    assert paris.verifier.open(london.sealer.seal("quote", "paris", b"", NOW_S), NOW_S)


def test_who_leaves_is_out_at_once(sites):
    london, paris = sites
    said = paris.book.leave(paris.active.key, NOW_S)
    assert london.book.note("farewell", said.raw, NOW_S) is DeclarationOrder.NEWER
    assert london.book.level("paris") is TrustLevel.LEFT
    assert set(london.book.pins()) == {"london"}
    with pytest.raises(Untrusted, match="unknown-site"):
        london.verifier.open(paris.sealer.seal("quote", "london", b"", NOW_S), NOW_S)


def test_what_the_disk_holds_is_what_the_gateway_knew(sites):
    london, _ = sites
    london.book.trust("paris", [permit(Verb.RUN)])
    london.restart()
    assert london.book.level("paris") is TrustLevel.APPROVED
    assert london.book.decide(
        PermissionRequest(Verb.RUN, "paris", "cpu", "risk", "public", "paris", 1, 0, "EUR")
    ).is_yes
