"""Sessions that we dial, from the handshake to an end that is planned, or not."""

import contextlib
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from federation.errors import ProtocolError, SessionRefused
from federation.messages.messages import Bye, Hello
from federation.messages.wire import pack
from federation.sessions.handshake import Credentials, Dialogue
from federation.sessions.session import FRAME_BYTES_MAX
from tests.fuzz.pipes import Pipe, PipeClosed
from tests.fuzz.roles import Role
from tests.fuzz.tally import Tally, reason_of
from tests.fuzz.values import Level
from tests.fuzz.vocabulary import odd_frame

# How many messages of a session are wild, and how many there are in a frame: where many are wild
# few would be heard of a large one.
KINDS: Final = (
    *((0.0, 600), (0.0, 300), (0.0, 300), (0.0, 100), (0.0, 20), (0.0, 1)),
    *((0.001, 100), (0.005, 20), (0.05, 3), (1.0, 1)),
)
# How often a session ends how: by a goodbye, without a word, by a message or a frame that is wrong,
# or by frames without end, of which nobody waits for the acknowledgement.
ENDS: Final = {"bye": 10, "drop": 10, "breach": 10, "frame": 10, "overrun": 1}
OVERRUN: Final = 60  # frames
FRAMES: Final = (1, 2, 8, 20, 40, 60)  # of a session
UNREAD_S: Final = 60.0  # an acknowledgement that takes so long is given up
BACK_OFF_S: Final = 0.05


@dataclass(frozen=True)
class Plan:
    """How one session goes."""

    wildness: float
    batch: int
    frames: int
    end: str  # one of ENDS

    @classmethod
    def draw(cls, chance: random.Random) -> "Plan":
        """Another one."""
        end = chance.choices(list(ENDS), list(ENDS.values()))[0]
        return cls(*chance.choice(KINDS), chance.choice(FRAMES), end)

    def message(self, role: Role, chance: random.Random) -> bytes:
        """The next message."""
        return role.say(chance, Level.WILD if chance.random() < self.wildness else Level.TAME)


class Visit:
    """One session that we dial, from the handshake to its end."""

    def __init__(self, pipe: Pipe, hello: Hello, credentials: Credentials, tally: Tally) -> None:
        self._pipe, self._tally = pipe, tally
        self._dialogue = Dialogue(hello=hello, credentials=credentials, random_bytes=os.urandom)
        self._under_way: deque[tuple[int, int]] = deque()  # frames, and how many messages each has
        self.session_id = ""

    def come_in(self) -> None:
        """Shake hands. Raises SessionRefused, ProtocolError or PipeClosed."""
        self._dialogue.connected(time.monotonic())
        until_s = time.monotonic() + UNREAD_S
        while not self._dialogue.is_open:
            self._dialogue.flush(self._pipe.send, time.monotonic())
            for frame in self._pipe.receive(0.2):
                self._dialogue.receive(frame, time.monotonic())
            if time.monotonic() > until_s:
                raise PipeClosed("no welcome")
        self._tally.sessions += 1

    def talk(self, role: Role, plan: Plan, chance: random.Random) -> None:
        """Say all that is planned. Raises as `come_in` when it is thrown out."""
        frames = plan.frames
        until_s = time.monotonic() + UNREAD_S
        while frames or self._under_way:
            session = self._dialogue.session
            assert session is not None
            while frames and session.has_room and not session.backlog_bytes:
                frames -= 1
                self._post([plan.message(role, chance) for _ in range(plan.batch)])
            before = len(self._under_way)
            self.hear(role, chance)
            if len(self._under_way) < before:
                until_s = time.monotonic() + UNREAD_S
            elif time.monotonic() > until_s:
                raise PipeClosed("nothing is acknowledged")

    def tell(self, message: bytes) -> None:
        """Say one thing, and see that it is heard."""
        self._post([message])
        session = self._dialogue.session
        assert session is not None
        until_s = time.monotonic() + UNREAD_S
        while not session.is_idle and time.monotonic() < until_s:
            for frame in self._pipe.receive(0.2):
                self._dialogue.receive(frame, time.monotonic())

    def _post(self, messages: list[bytes]) -> None:
        session = self._dialogue.session
        assert session is not None
        for each in messages:
            self._dialogue.post_encoded(each)
        self._tally.sent += len(messages)
        self._dialogue.flush(self._pipe.send, time.monotonic())
        self._under_way.append((session.sent, len(messages)))

    def hear(self, role: Role, chance: random.Random, wait_s: float = 0.05) -> None:
        """Read received messages, and react to them."""
        tally, session = self._tally, self._dialogue.session
        assert session is not None
        replies: list[bytes] = []
        for frame in self._pipe.receive(wait_s):
            for message in self._dialogue.receive(frame, time.monotonic()):
                tally.answers[message.kind] += 1
                replies += role.react(message, chance)
        while self._under_way and self._under_way[0][0] <= session.acknowledged:
            tally.heard += self._under_way.popleft()[1]
        if replies:
            self._post(replies)
        self._dialogue.flush(self._pipe.send, time.monotonic())

    def end(self, role: Role, plan: Plan, chance: random.Random) -> None:
        """Come to the planned end."""
        session = self._dialogue.session
        assert session is not None
        match plan.end:
            case "bye":
                self._dialogue.post(Bye("done"))
                self._dialogue.flush(self._pipe.send, time.monotonic())
            case "breach":
                some = [plan.message(role, chance) for _ in range(min(plan.batch, 20))]
                some.insert(int(chance.random() * len(some)), role.breach(chance))
                self._post(some)
                self._wait(role, chance)
            case "overrun":
                self._overrun(role, session.sent + 1, chance)
                self._wait(role, chance)
            case "frame":
                frame = pack([session.sent + 1, session.received, [role.say(chance, Level.TAME)]])
                self._pipe.send(odd_frame(frame, session.sent + 1, chance))
                self._tally.sent += 1
                self._wait(role, chance)

    def _overrun(self, role: Role, number: int, chance: random.Random) -> None:
        message = role.say(chance, Level.TAME)
        items = [message] * max(1, FRAME_BYTES_MAX // (len(message) + 8))
        for at in range(OVERRUN):
            self._pipe.send(pack([number + at, 0, items]))
            self._tally.sent += 1

    def _wait(self, role: Role, chance: random.Random) -> None:
        """Hear how the gateway takes it; some breaches it need not notice."""
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s and (self._under_way or chance.random() < 0.9):
            self.hear(role, chance)


def sessions(
    tally: Tally, chance: random.Random, open_: Callable[[], tuple[Pipe, Hello, Credentials, Role]]
) -> Iterator[None]:
    """Session after session, each with a new pipe; yields after each."""
    while True:
        plan = Plan.draw(chance)
        try:
            pipe, hello, credentials, role = open_()
        except PipeClosed:
            tally.refused["closed"] += 1
            time.sleep(BACK_OFF_S)
            yield
            continue
        visit = Visit(pipe, hello, credentials, tally)
        try:
            visit.come_in()
        except SessionRefused as refused:
            tally.refused[reason_of(refused)] += 1
            time.sleep(BACK_OFF_S)
        except (ProtocolError, PipeClosed) as error:
            tally.refused[f"closed: {type(error).__name__}"] += 1
            time.sleep(BACK_OFF_S)
        else:
            try:
                visit.talk(role, plan, chance)
                with contextlib.suppress(ProtocolError):  # our session knows nothing of odd frames
                    visit.end(role, plan, chance)
            except SessionRefused as refused:
                tally.thrown_out[reason_of(refused)] += 1
            except PipeClosed as closed:
                tally.thrown_out[f"closed: {str(closed)[:40]}"] += 1
        finally:
            pipe.close()
        yield
