"""A message's row in the registry decides how it is sent, taken and refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.pure.examples import example
from support.pure.lone_router import LoneRouter
from support.pure.town import UTC_S

import gateway.site  # noqa: F401 - imports every part
from federation.messages.deals import Sealed
from federation.messages.messages import BETWEEN_GATEWAYS, MESSAGES
from federation.messages.registry import FromBuyer, FromEither, FromSeller, Receiver
from gateway.base.handlers import MessageHandler
from gateway.peering.message_router import KIND
from gateway.scheduler.model.effects import PeerSide
from gateway.sessions.links import LinkSaid
from gateway.sessions.listener import PeerSaid
from simulations.world.peers import SimRoll

ROOT = Path(__file__).parents[3]
SENT_BY = {PeerSide.BUYER: (FromBuyer, FromEither), PeerSide.SELLER: (FromSeller, FromEither)}


def test_one_class_handles_the_messages_of_each_part():
    parts = [each.receiver for each in MessageHandler.__subclasses__()]
    assert sorted(parts) == sorted(Receiver)


class Taken(Exception):
    """A message has reached its part."""


@pytest.fixture(scope="module")
def alone():
    alone = LoneRouter()

    def take(*_):
        raise Taken

    alone.punished, alone.sealer = [], SimRoll("paris", ["london"], 1).sealer
    alone.router._peers.links.punish = lambda site, reason: alone.punished.append(reason)
    alone.router._say = lambda line: None
    alone.books.hear = take
    alone.router.hear = alone.router.gossip.hear = take
    alone.router.transfers = SimpleNamespace(hear=take, fetch_results=take)
    server = alone.router._server
    server.hear_reserve = server.hear_reserved = take
    for part in alone.london.exchange._parts.values():
        part.hear = take
    return alone


def answer(alone, side, message):
    """Why a session ends when another site says this."""
    if side is PeerSide.SELLER:
        alone.router.hear_link(LinkSaid("paris", message))
        return alone.punished.pop()
    alone.router.hear_peers([PeerSaid(alone.meet("paris"), message)])
    return alone.expelled.pop()


@pytest.mark.parametrize("side", PeerSide)
@pytest.mark.parametrize("cls", BETWEEN_GATEWAYS, ids=lambda cls: cls.kind)
def test_a_message_is_taken_from_its_sender_and_under_its_seal_alone(alone, cls, side):
    message = example(cls)
    sealed = Sealed(alone.sealer.seal(KIND, "london", MESSAGES.encode(message), UTC_S))
    right, wrong = (sealed, message) if cls.row.sealed else (message, sealed)
    refusal = "must be signed" if cls.row.sealed else "must not be sealed"
    assert answer(alone, side, wrong).endswith(f"protocol error: {cls.kind!r} {refusal}")
    is_taken = issubclass(cls, SENT_BY[side]) and cls.row.to is not Receiver.TRUST
    assert ("Taken" in answer(alone, side, right)) == is_taken


@pytest.mark.parametrize("cls", BETWEEN_GATEWAYS, ids=lambda cls: cls.kind)
def test_a_message_is_sent_as_its_row_says(alone, cls):
    posted = []
    alone.router._peers.links.post = lambda *each, urgent=False: posted.append((*each, urgent))
    alone.router.carry("rome", PeerSide.SELLER, example(cls))
    [(site, message, urgent)] = posted
    assert site == "rome"
    assert isinstance(message, Sealed) == cls.row.sealed
    assert urgent == cls.row.urgent


# --- a new message -------------------------------------------------------------------------------

CLASS = '''

@dataclass(frozen=True, slots=True)
class Nudge(FromBuyer, to=Receiver.SALES, sealed=True):
    """Remind the seller of a contract."""

    kind: ClassVar[str] = "nudge"
    contract: Text
'''
HANDLER = """
    @handles(deals.Nudge)
    def _nudge(self, buyer: str, message: deals.Nudge, *_: float) -> None:
        self._decline(buyer, message.contract, "busy", "nudged")

    def _ask_back("""
ROW = "| `nudge` | buyer → seller | `contract` | do go on |\n| `closed` |"
TRIED = """
from support.pure.town import UTC_S, dear_and_cheap
from federation.errors import ProtocolError
from federation.messages.deals import Nudge
from federation.messages.messages import MESSAGES
from gateway.scheduler.model.effects import PeerSide
kernel = dear_and_cheap().sites["london"].kernel
nudge = MESSAGES.decode(MESSAGES.encode(Nudge("paris-1-1")), 1000)
kernel.hear("paris", PeerSide.BUYER, nudge, 0.0, UTC_S)
print(kernel.act([], 0.0, UTC_S)[-1].message.reason)
try:
    kernel.hear("paris", PeerSide.SELLER, nudge, 0.0, UTC_S)
except ProtocolError as error:
    print(error)
"""


@pytest.mark.real
def test_a_new_message_is_two_files_and_its_row_in_the_protocol(tmp_path):
    for name in ("federation", "gateway", "policies", "simulations", "tests", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def run(*arguments):
        path = os.pathsep.join(map(str, (tmp_path, tmp_path / "tests")))
        result = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        return result.stdout + result.stderr

    def edit(name, old, new):
        text = (tmp_path / name).read_text()
        assert text.count(old) == 1
        (tmp_path / name).write_text(text.replace(old, new))

    deals = tmp_path / "federation" / "messages" / "deals.py"
    deals.write_text(deals.read_text() + CLASS)
    assert "TypeError: Sales: no handler" in run("-c", TRIED)
    edit("gateway/contracts/selling/sales.py", "\n    def _ask_back(", HANDLER)
    assert run("-c", TRIED) == "nudged\na seller may not send 'nudge'\n"
    edit("docs/protocol.md", "| `closed` |", ROW)
    edit("docs/protocol.md", "`bill`, `settle`,", "`bill`, `settle`, `nudge`,")
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_docs.py")
    assert "\n4 passed" in run(*tests, "-k", "nudge or sealed_or_urgent")
