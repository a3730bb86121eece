"""The hello of two gateways, end to end through both pure sides: admissions and refusals."""

import itertools

import pytest
from support.pure.site_keys import FEDERATION, KnownSites, key

from federation.errors import SessionRefused
from federation.messages.messages import HANDSHAKE, Proof, Welcome
from federation.sessions.handshake import Dialogue, Greeting, Opened
from federation.signed.envelopes import Verifier
from gateway.trust import introduction
from gateway.trust.introduction import SiteCredentials
from gateway.trust.standing import TrustLevel


class Own:
    """A site, as the introduction asks for it."""

    def __init__(self, site, *others, boot=1, federation=FEDERATION, signs_as=None):
        self.site, self.boot, self.federation = site, boot, federation
        self.signing_key = key(signs_as or site)
        self.levels = dict.fromkeys(others, TrustLevel.APPROVED)
        self._known = KnownSites(site, *others)
        self.verifier = Verifier(self._known)

    def level(self, site):
        return self.levels.get(site)

    def keys_of(self, site):
        return self._known.keys_of(site)

    def meet(self, site, boot):
        self.verifier.meet(site, boot)

    def succession(self):
        return b""


class Meeting:
    """A dialler and a listener, and their frames."""

    def __init__(self, dialler, listener, expected=None):
        numbers = itertools.count(1)
        self.dialogue = Dialogue(
            hello=introduction.hello(dialler),
            credentials=SiteCredentials(dialler, expected or listener.site),
            random_bytes=lambda count: bytes([next(numbers)]) * count,
        )
        self.listener = listener
        self.credentials = SiteCredentials(listener)
        self.greeting = Greeting(listener.site, listener.boot, self.credentials, b"l" * 16)
        self.frames = []
        self.dialogue.connected(0.0)

    def next_frame(self):
        """The dialler's next frame."""
        self.dialogue.flush(lambda frame: self.frames.append(frame) or True, 0.0)
        return self.frames[-1]

    def hold(self):
        """All of it: returns the dialler's reading of the welcome."""
        self.dialogue.receive(self.greeting.receive(self.next_frame()), 0.0)
        self.greeting.receive(self.next_frame())
        return self.dialogue.receive(self.welcome(self.greeting.proof()), 0.0)

    def welcome(self, proof):
        return HANDSHAKE.encode(Welcome("s", False, 0, proof, 8, 2.0, 10.0, 1, 1, 1 << 20, []))


@pytest.fixture
def paris():
    return Own("paris", "london", "lyon")


@pytest.fixture
def london():
    return Own("london", "paris", "lyon")


def refusal(meeting):
    with pytest.raises(SessionRefused) as caught:
        meeting.hold()
    return caught.value.code


def test_two_approved_sites_meet(paris, london):
    assert Meeting(paris, london).hold() == [Opened(False, "london")]


def test_a_stranger_is_refused(london):
    assert refusal(Meeting(Own("essex", "london"), london)) == "unknown-site"


def test_a_member_of_another_federation_is_refused(london):
    other = Own("paris", "london", federation="others-1111")
    assert refusal(Meeting(other, london)) == "wrong-federation"


@pytest.mark.parametrize(
    ("level", "code"),
    [
        (TrustLevel.KNOWN, "not-approved"),
        (TrustLevel.PENDING, "not-approved"),
        (TrustLevel.LEFT, "not-approved"),
        (TrustLevel.EXPELLED, "expelled"),
    ],
)
def test_only_an_approved_site_is_let_in(paris, london, level, code):
    london.levels["paris"] = level
    assert refusal(Meeting(paris, london)) == code


def test_a_site_that_is_expelled_while_it_proves_itself_is_refused(paris, london):
    meeting = Meeting(paris, london)
    meeting.dialogue.receive(meeting.greeting.receive(meeting.next_frame()), 0.0)
    london.levels["paris"] = TrustLevel.EXPELLED
    with pytest.raises(SessionRefused, match="expelled"):
        meeting.greeting.receive(meeting.next_frame())


def test_a_site_can_not_take_another_ones_name(london):
    lyon = Own("paris", "london", signs_as="lyon")
    assert refusal(Meeting(lyon, london)) == "bad-signature"


def test_nobody_passes_for_us(london):
    assert refusal(Meeting(Own("london", "paris"), london)) == "unknown-site"


def test_a_recorded_proof_is_worth_nothing(paris, london):
    recorded = Meeting(paris, london)
    recorded.hold()
    again = Meeting(paris, london)
    again.greeting = Greeting("london", 1, again.credentials, b"m" * 16)
    again.greeting.receive(recorded.frames[0])
    with pytest.raises(SessionRefused) as caught:
        again.greeting.receive(recorded.frames[1])
    assert caught.value.code == "bad-signature"


def test_the_dialler_signs_nothing_for_another_site_than_it_dialled(paris, london):
    assert refusal(Meeting(paris, london, expected="lyon")) == "wrong-site"


def test_a_listener_that_can_not_prove_itself_is_not_believed(paris, london):
    london.signing_key = key("lyon")
    assert refusal(Meeting(paris, london)) == "bad-signature"


def test_a_proof_of_the_dialler_is_none_of_the_listener(paris, london):
    meeting = Meeting(paris, london)
    meeting.dialogue.receive(meeting.greeting.receive(meeting.next_frame()), 0.0)
    own = HANDSHAKE.decode(meeting.next_frame(), 1 << 16)
    assert isinstance(own, Proof)
    with pytest.raises(SessionRefused) as caught:
        meeting.dialogue.receive(meeting.welcome(own.proof), 0.0)
    assert caught.value.code == "bad-signature"


def test_a_former_life_of_a_site_is_refused(paris, london):
    paris.boot = 7
    Meeting(paris, london).hold()
    paris.boot = 6
    assert refusal(Meeting(paris, london)) == "old-boot"


@pytest.mark.parametrize(
    "about", [{}, {"federation": FEDERATION}, {"federation": 5, "boot": 1}, {"boot": -1}]
)
def test_a_hello_that_says_too_little_is_refused(paris, london, about, monkeypatch):
    full = introduction.hello(paris)
    monkeypatch.setattr(introduction, "hello", lambda own: full)
    full.about.clear()
    full.about.update(about)
    assert refusal(Meeting(paris, london)) == "name"
