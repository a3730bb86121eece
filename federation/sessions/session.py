"""A session that outlives the pipe under it: numbered frames, acknowledged both ways.

One `Session` is one side. It is pure: messages go in by `post`, frames come out by `next_frame`; a
frame from the other side goes into `accept` and messages come out. A frame is

    [number, acknowledged, [message, …]]

where `acknowledged` is the last frame that arrived here. Each side keeps its unacknowledged frames;
when a pipe breaks, a new pipe and `rewind` continue the session, with nothing lost and nothing
twice. A message that is larger than a frame travels in pieces, each [bytes, is_last] in place of
the bytes.

The transport rule of docs/protocol.md is implemented here. nng's polyamorous socket keeps two
messages a pipe and silently drops the third. So the *listening* side never has more than one
unacknowledged frame in flight, including acknowledgements: its window is 1, and its bare
acknowledgements are numbered too. The *dialling* side may have `window` frames in flight, and its
bare acknowledgements are not numbered: they bear number 0.
"""

from collections import deque
from typing import Any

from federation.errors import ProtocolError
from federation.messages.wire import ITEMS_MAX, pack, unpack

FRAME_BYTES_MAX = 1 << 20  # a frame is filled up to here
# The most that a receiver accepts: a full frame, its envelope, and one message that just fitted.
RECEIVE_BYTES_MAX = 2 * FRAME_BYTES_MAX + 4096
PIECE_BYTES = FRAME_BYTES_MAX
DIALLER_WINDOW = 8


class Session:
    """One side of a session.

    Args:
        window: our frames that may be unacknowledged at a time.
        peer_window: the same for the other side; exceeding it breaks the protocol.
        numbers_acks: whether bare acknowledgements are numbered (the listening side).
        message_bytes_max: the largest message that is accepted, in bytes.

    Attributes:
        is_current: whether the other side had sent all that it had to say when it made the frame
            that was accepted last: not if that frame was made before the session was resumed, nor
            if it went ahead of messages for which the window may have had no room, nor if the frame
            itself may have had none.
    """

    def __init__(
        self, *, window: int, peer_window: int, numbers_acks: bool, message_bytes_max: int
    ) -> None:
        self._window = window
        self._peer_window = peer_window
        self._numbers_acks = numbers_acks
        self._message_bytes_max = message_bytes_max
        self._urgent: deque[bytes] = deque()
        self._waiting: deque[bytes] = deque()
        self._pieces = memoryview(b"")  # the rest of the message that is sent in pieces
        # Our frames, with their numbers and the acknowledgements in them.
        self._unacknowledged: deque[tuple[int, bytes, int]] = deque()
        self._resend: deque[bytes] = deque()
        self._sent = 0
        self._assembly: list[bytes] = []
        self._assembly_bytes = 0
        self.received = 0
        self._told = 0  # the last acknowledgement that we sent
        self._known = 0  # the last one that certainly arrived there
        self._rewound = -1  # our last frame that the other side had when it resumed
        self.is_current = False
        # While set, no further frame is acknowledged: the other side continues until its window is
        # full, then only listens and keeps up its heartbeats. That is back-pressure.
        self.is_held = False
        self.backlog_bytes = 0

    def post(self, message: bytes, *, urgent: bool = False) -> None:
        """Queue an encoded message.

        There are two lanes, each in order: an urgent message overtakes those that are not yet in a
        frame, but not the rest of a large message that is being sent in pieces.
        """
        (self._urgent if urgent else self._waiting).append(message)
        self.backlog_bytes += len(message)

    @property
    def is_idle(self) -> bool:
        """Whether everything posted has been acknowledged."""
        return not (self._urgent or self._waiting or self._pieces or self._unacknowledged)

    @property
    def sent(self) -> int:
        """The number of the last frame that was made."""
        return self._sent

    @property
    def acknowledged(self) -> int:
        """The number of our last frame that the other side has received."""
        return self._sent - len(self._unacknowledged)

    @property
    def has_room(self) -> bool:
        """Whether a message posted now would be sent at once."""
        return not self._resend and len(self._unacknowledged) < self._window

    @property
    def owes(self) -> int:
        """Frames that arrived and whose acknowledgement is due."""
        return 0 if self.is_held else self.received - self._told

    @property
    def admitted(self) -> int:
        """The last frame from the other side that it may know to have arrived."""
        return self._told if self.is_held else self.received

    def next_frame(self, *, acknowledge: bool = False, beat: bool = False) -> bytes | None:
        """Return the next frame to send now; None when no message waits or the window is full.

        With `acknowledge`, a frame without messages is made when there are none. With `beat` it is
        one that the other side acknowledges in turn, unless a frame in flight will be acknowledged
        anyway: so a side without messages learns that it is heard.
        """
        if self._resend:
            return self._resend.popleft()
        under_way = len(self._unacknowledged)
        if under_way < self._window and (self._waiting or self._urgent or self._pieces):
            return self._number(self._fill())
        if not (acknowledge or beat):
            return None
        if not self._numbers_acks and (under_way or not beat):
            self._told = self.admitted
            return pack([0, self._told, []])
        return self._number([]) if under_way < self._window else None

    def _number(self, items: list[Any]) -> bytes:
        self._sent += 1
        self._told = self.admitted
        frame = pack([self._sent, self._told, items])
        self._unacknowledged.append((self._sent, frame, self._told))
        return frame

    def _fill(self) -> list[Any]:
        """Return the messages that fit into one frame, in order."""
        items: list[Any] = []
        room, filled = FRAME_BYTES_MAX, 0
        while room > 0 and len(items) < ITEMS_MAX:
            if self._pieces:
                piece = bytes(self._pieces[:PIECE_BYTES])
                self._pieces = self._pieces[PIECE_BYTES:]
                items.append([piece, not self._pieces])
                room -= len(piece)
                filled += len(piece)
                self.backlog_bytes -= len(piece)
            elif lane := self._urgent or self._waiting:
                size = len(lane[0])
                if size > FRAME_BYTES_MAX:
                    self._pieces = memoryview(lane.popleft())
                    continue
                # A frame that is half empty takes any message: the other side takes frames of twice
                # the size, and knows by the half of it that nothing waits here (_may_be_full).
                if size > room and filled > FRAME_BYTES_MAX // 2:
                    break
                items.append(lane.popleft())
                room -= size + 8
                filled += size
                self.backlog_bytes -= size
            else:
                break
        return items

    def accept(self, data: bytes) -> list[bytes]:
        """Take a frame from the other side; return the messages it completes, in order.

        Raises:
            ProtocolError: not a frame, a gap in the numbers, an acknowledgement of a frame that was
                never sent, a window overrun, or a message that is too large.
        """
        frame = unpack(data, RECEIVE_BYTES_MAX)
        match frame:
            case [int(number), int(acknowledged), list(items)] if number >= 0:
                pass
            case _:
                raise ProtocolError("the message is not a frame")
        self._acknowledge(acknowledged)
        # A frame from before the session was resumed acknowledges no more than the resumption did.
        # An unnumbered one goes ahead of messages for which the window has no room.
        self.is_current = acknowledged > self._rewound
        if number == 0:
            if items or self._numbers_acks is False:
                raise ProtocolError("an unnumbered frame is not an acknowledgement")
            self.is_current = self.received - self._known < self._peer_window
            return []
        if number <= self.received:
            return []  # sent again after a new pipe; it has arrived before
        if number != self.received + 1:
            raise ProtocolError(f"frame {number} arrived, expected frame {self.received + 1}")
        if number - self._told > self._peer_window:
            raise ProtocolError(f"more than {self._peer_window} frames are unacknowledged")
        self.received = number
        self.is_current &= not _may_be_full(data, items)
        return self._collect(items)

    def _acknowledge(self, number: int) -> None:
        if number > self._sent or number < 0:
            raise ProtocolError(f"frame {number} was acknowledged but never sent")
        while self._unacknowledged and self._unacknowledged[0][0] <= number:
            _, _, told = self._unacknowledged.popleft()
            self._known = max(self._known, told)

    def _collect(self, items: list[Any]) -> list[bytes]:
        messages = []
        for item in items:
            if type(item) is bytes and not self._assembly:
                messages.append(item)
                continue
            match item:
                case [bytes(piece), bool(is_last)] if piece:
                    self._assembly.append(piece)
                    self._assembly_bytes += len(piece)
                case _:
                    raise ProtocolError("the frame contains an invalid message")
            if self._assembly_bytes > self._message_bytes_max:
                raise ProtocolError(f"a message exceeds {self._message_bytes_max:,} bytes")
            if is_last:
                messages.append(b"".join(self._assembly))
                self._assembly = []
                self._assembly_bytes = 0
        return messages

    def rewind(self, acknowledged: int) -> None:
        """Continue over a new pipe: the other side has received our frames up to `acknowledged`.

        All later frames are sent again, byte for byte, before any new one.
        """
        self._acknowledge(acknowledged)
        self._rewound = acknowledged
        self._resend = deque(frame for _, frame, _ in self._unacknowledged)
        self._told = self._known = self.admitted  # in the handshake


def _may_be_full(frame: bytes, items: list[Any]) -> bool:
    """Whether a frame may have had no room for a message that waited.

    It ends within a message, has as many as a frame may have, or is over half full.
    """
    if not items:
        return False
    is_within = type(items[-1]) is list and items[-1][1:] == [False]
    return is_within or len(items) >= ITEMS_MAX or len(frame) > FRAME_BYTES_MAX // 2
