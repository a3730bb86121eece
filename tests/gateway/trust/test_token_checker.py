"""Tokens at the door: the user they admit, the rights they give, and their end."""

import itertools

import pytest
from support.pure.site_keys import FEDERATION, NOW_S, KnownSites, key

from federation.errors import SessionRefused
from federation.messages.messages import Ask, Cancel, CloseJob, Hello, OpenJob, PutFunction, Tasks
from federation.reasons import Reason
from federation.sessions.handshake import Dialogue, Opened, SharedSecret
from federation.sessions.memory import MemoryPort
from federation.signed.tokens import UserToken, write_token
from federation.transport import Origin
from gateway.config.limits import ListenerLimits
from gateway.config.site import SiteConfig
from gateway.runtime.credentials import ListenerCredentials
from gateway.sessions.listener import PeerCameIn, SessionListener
from gateway.trust.rights import Denied
from gateway.trust.token_checker import AtHome, InTheClear, TokenChecker, TokenCredentials


def token(signer="london", **changes):
    terms = {
        "federation": FEDERATION,
        "issuer": "london",
        "id": "00112233aabbccdd",
        "user": "ada",
        "projects": frozenset({"risk"}),
        "scopes": frozenset({"submit", "cancel"}),
        "sites": frozenset({"london"}),
        "issued_s": NOW_S,
        "expires_s": NOW_S + 3600,
    }
    return write_token(UserToken(**(terms | changes)), key(signer))


ON_THIS_HOST = Origin()
IN_THE_CLEAR = Origin("203.0.113.9", 4711, is_private=False)
BY_TLS = Origin("203.0.113.9", 4711, is_private=True)


class Door:
    """A listener of site london that takes tokens, and a clock."""

    def __init__(self, secret="", *, required=False, at_home=None):
        self.now_s = NOW_S
        self.trust = KnownSites("london", "paris")
        self.cut_off, self.uses = set(), []
        self.checker = TokenChecker(
            lambda: self.trust,
            lambda: self.now_s,
            lambda token: token.user in self.cut_off,
            lambda *use: self.uses.append(use),
        )
        self.port = MemoryPort()
        self.exposed = []
        credentials = TokenCredentials(self.checker, secret, required=required)

        def in_the_clear(origin):
            return InTheClear(
                credentials,
                self.checker,
                lambda token, host: self.exposed.append((token.id, host)),
                origin,
            )

        self.listener = SessionListener(
            self.port,
            ListenerLimits(),
            credentials=credentials,
            in_the_clear=in_the_clear,
            at_home=at_home and AtHome(TokenCredentials(self.checker, secret, required=False)),
        )
        self.news = []

    def call(self, text=None, role="client", secret="", resume=None, origin=ON_THIS_HOST):
        """Come in; the dialogue, or SessionRefused."""
        numbers = itertools.count(1)
        about = {} if text is None else {"token": text}
        link = self.port.dial(origin)
        dialogue = resume or Dialogue(
            hello=Hello([], role, "caller", "mallory", b"", "", 0, about),
            credentials=SharedSecret(secret),
            random_bytes=lambda count: bytes([next(numbers)]) * count,
        )
        dialogue.connected(0.0)
        heard = []
        for _ in range(4):
            dialogue.flush(link.send, 0.0)
            self.news += self.listener.pipes_came(self.port.came(), 0.0)
            for pipe, frame in self.port.receive():
                self.news += self.listener.receive(pipe, frame, 0.0)
            self.listener.flush(0.0)
            for frame in link.receive():
                heard += dialogue.receive(frame, 0.0)
        assert any(isinstance(each, Opened) for each in heard)
        return dialogue

    def peers(self):
        return [each.peer for each in self.news if isinstance(each, PeerCameIn)]

    def refusal(self, *args, **kwargs):
        with pytest.raises(SessionRefused) as caught:
            self.call(*args, **kwargs)
        assert not self.peers()
        return caught.value.code


@pytest.fixture
def make_door():
    made = []

    def make(*args, **kwargs):
        made.append(Door(*args, **kwargs))
        return made[-1]

    yield make
    for door in made:
        door.port.close()


@pytest.fixture
def door(make_door):
    return make_door("a secret")


def test_a_token_lets_in_without_the_secret_and_says_who_it_is(door):
    door.call(token())
    assert [each.user for each in door.peers()] == ["ada"]


def test_the_shared_secret_still_lets_in(door):
    door.call(secret="a secret")
    assert [each.user for each in door.peers()] == ["mallory"]
    assert not door.listener.peers[door.peers()[0].handle].about


def test_who_has_neither_stays_outside(door):
    assert door.refusal() == "secret"


def test_where_tokens_are_required_the_secret_is_not_enough(make_door):
    assert make_door("s", required=True).refusal(secret="s") == "token"
    make_door("s", required=True).call(token())


def test_our_own_socket_needs_no_token(make_door):
    make_door("s", required=True, at_home=True).call(secret="s")


@pytest.mark.parametrize("required", [True, False])
def test_at_home_the_own_user_needs_no_secret_and_shows_no_wrong_one(make_door, required):
    make_door("s", required=required, at_home=True).call()
    make_door("s", required=required, at_home=True).call(token())
    assert make_door("s", required=required, at_home=True).refusal(secret="x") == "secret"
    abroad = {"origin": BY_TLS}
    code = "token" if required else "secret"
    assert make_door("s", required=required, at_home=True).refusal(**abroad) == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"expires_s": NOW_S - 1}, "expired"),
        ({"issued_s": NOW_S + 300}, "ahead"),
        ({"sites": frozenset({"paris"})}, "wrong-site"),
        ({"federation": "elsewhere"}, "wrong-federation"),
        ({"signer": "paris"}, "bad-signature"),
        ({"issuer": "nowhere"}, "unknown-site"),
        ({"issuer": "paris", "signer": "paris"}, "unknown-site"),
        ({"scopes": frozenset({"work"})}, "scope"),
    ],
)
def test_a_token_that_is_not_good_here_is_refused_by_name(door, changes, code):
    assert door.refusal(token(**changes)) == code


@pytest.mark.parametrize("text", ["", "gft1_abc", "hello", 5, None, ["gft1"]])
def test_what_is_no_token_is_refused(door, text):
    about = {"token": text}
    hello = Hello([1], "client", "c", "u", b"n" * 16, "", 0, about)
    with pytest.raises(SessionRefused):
        TokenCredentials(door.checker, "s", required=True).hear(hello)


def test_a_token_that_was_changed_is_refused(door):
    text = token()
    assert door.refusal(text[:-1] + ("a" if text[-1] != "a" else "b")) == "altered"


def test_a_worker_needs_a_token_to_work(door):
    assert door.refusal(token(), role="worker") == "scope"
    door.call(token(scopes=frozenset({"work"})), role="worker")


def test_a_token_to_work_may_name_its_pools(door):
    text = token(scopes=frozenset({"work:hpc", "work:gpu", "submit"}))
    door.call(text, role="worker")
    found = door.checker.read(text).token
    assert [pool for pool in ("hpc", "gpu", "local", "", "h") if found.may_work_in(pool)] == [
        "hpc",
        "gpu",
    ]
    assert door.checker.read(token(scopes=frozenset({"work"}))).token.may_work_in("local")
    assert not door.checker.read(token()).token.may_work_in()


def test_another_sites_user_comes_under_its_name_and_never_as_a_worker(door):
    door.trust.welcome.add("paris")
    every = frozenset({"submit", "work", "work:hpc", "admin"})
    text = token(issuer="paris", signer="paris", scopes=every)
    assert door.refusal(text, role="worker") == "scope"
    door.call(text)
    assert [each.user for each in door.peers()] == ["ada@paris"]


def test_a_session_is_not_resumed_by_another_token_of_the_same_user(door):
    first = door.call(token())
    first.lost()
    other = token(id="ffffffffffffffff")
    second = Dialogue(
        hello=Hello([], "client", "caller", "mallory", b"", "", 0, {"token": other}),
        credentials=SharedSecret(""),
        random_bytes=lambda count: b"r" * count,
    )
    second.session, second._session_id = first.session, first._session_id
    door.call(resume=second)
    assert len(door.peers()) == 2


def test_a_token_in_the_clear_is_refused_and_named(door):
    with pytest.raises(
        SessionRefused, match=r"token 00112233aabbccdd was sent over plain tcp"
    ) as caught:
        door.call(token(), origin=IN_THE_CLEAR)
    assert caught.value.code == "exposed"
    assert door.exposed == [("00112233aabbccdd", "203.0.113.9")]
    door.call(token(), origin=BY_TLS)
    assert len(door.exposed) == 1


def test_a_token_that_came_in_the_clear_is_named_in_the_log_once(door):
    said = []
    credentials = ListenerCredentials(
        SiteConfig("london", pools=()), None, door.checker, said.append
    )
    for _ in range(3):
        credentials._note_exposed(door.checker.read(token()).token, "203.0.113.9")
    (line,) = said
    assert "token 00112233aabbccdd of ada arrived over plain tcp:// from 203.0.113.9" in line
    assert line.endswith("gridfed token --revoke 00112233aabbccdd")


@pytest.mark.parametrize("text", ["gft1_abc", "", 5, ["gft1"]])
def test_what_is_no_token_is_refused_in_the_clear_and_named_nowhere(door, text):
    with pytest.raises(SessionRefused):
        door.call(text, origin=IN_THE_CLEAR)
    assert not door.exposed


def test_the_secret_may_come_in_the_clear_for_it_does_not_travel(door):
    door.call(secret="a secret", origin=IN_THE_CLEAR)
    assert [each.user for each in door.peers()] == ["mallory"]


@pytest.mark.parametrize("user", ["eve@paris", "group:quants"])
def test_a_token_of_a_user_who_poses_as_another_is_refused(door, user):
    assert door.refusal(token(user=user)) == "name"


# --- what it is good for -------------------------------------------------------------------------


def opening(project="risk"):
    return OpenJob(
        *("j", "f", b"f" * 32, False, project, 0.0, {}, None, 0, None, "", "3.11", False, False),
        {},
    )


def held(door, **changes):
    return door.checker.read(token(**changes))


def denial(door, message, **changes):
    with pytest.raises(Denied) as caught:
        held(door, **changes).check(message)
    return caught.value.code


def test_a_token_is_good_for_its_projects_only(door):
    held(door).check(opening("risk"))
    held(door, projects=None).check(opening("fx"))
    assert denial(door, opening("fx")) == Reason.PROJECT_NOT_ALLOWED
    held(door).check(Ask(1, "explain", {"job": "j"}))
    for verb in ("explain", "reserve"):
        held(door).check(Ask(1, verb, {"project": "risk"}))
        assert denial(door, Ask(1, verb, {"project": "fx"})) == Reason.PROJECT_NOT_ALLOWED


@pytest.mark.parametrize(
    "message",
    [
        opening(),
        PutFunction(b"f", b""),
        Tasks("j", 0, []),
        CloseJob("j", 0, []),
        Cancel(1, "j", [], True),
    ],
    ids=lambda each: each.kind,
)
def test_who_may_only_read_submits_and_cancels_nothing(door, message):
    scopes = frozenset({"report", "audit"})
    assert denial(door, message, scopes=scopes) == Reason.SCOPE_MISSING
    held(door, scopes=scopes).check(Ask(1, "report", {}))  # which the desk looks at


# --- its end -------------------------------------------------------------------------------------


def test_a_token_ends_when_it_expires(door):
    found = held(door)
    assert door.checker.find_end(found) is None
    door.now_s += 3600
    assert door.checker.find_end(found).code == "expired"


def test_all_earlier_tokens_of_a_user_end_at_once(door):
    found = door.checker.read(token())
    assert door.checker.find_end(found) is None
    door.cut_off.add("ada")
    assert door.checker.find_end(found).code == "revoked"
    assert "as are all earlier tokens of ada" in str(door.checker.find_end(found))
    assert door.refusal(found.text) == "revoked"


def test_the_use_of_our_own_tokens_is_noted(door):
    door.checker.note_use(door.checker.read(token()), "10.1.2.3")
    assert door.uses == [("00112233aabbccdd", "10.1.2.3")]


def test_a_token_ends_when_it_is_revoked(door):
    found = held(door)
    door.trust.revoked["london"] = {"00112233aabbccdd"}
    assert door.checker.find_end(found).code == "revoked"
    assert door.refusal(found.text) == "revoked"


def test_a_foreign_users_token_ends_with_the_welcome_of_its_site(door):
    door.trust.welcome.add("paris")
    found = held(door, issuer="paris", signer="paris")
    assert door.checker.find_end(found) is None
    door.trust.welcome.clear()
    assert door.checker.find_end(found).code == "unknown-site"
