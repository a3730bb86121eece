"""The requests of a client: a thread asks its gateway, and waits for the answer."""

from typing import Any

from federation.engine.books.requests import ELSEWHERE, RequestTable, elsewhere
from federation.engine.dialling.gateways import Itinerary
from federation.engine.leading import Leading
from federation.errors import GatewayUnreachable, GridError, JobNotFound, ProtocolError
from federation.messages.messages import MESSAGES, Answer, Ask, Cancel
from federation.reasons import Reason
from federation.sessions.handshake import Dialogue


class Requests:
    """Asks the gateway of an engine.

    Args:
        leading: drives the connection while a thread waits.
        table: the requests under way.
        dialogue, itinerary: whether there is a session, and with which gateway.
    """

    def __init__(
        self, leading: Leading, table: RequestTable, dialogue: Dialogue, itinerary: Itinerary
    ) -> None:
        self._leading = leading
        self._table = table
        self._dialogue = dialogue
        self._itinerary = itinerary

    def ask(
        self, verb: str, details: dict[str, Any], timeout_s: float | None = None, at: str = ""
    ) -> Any:
        """Send a request; return the answer's value, or raise the error of its code.

        With `at`, only the gateway of that address may answer: GatewayUnreachable when this client
        goes to another before it has answered.
        """
        question = Ask(0, verb, details)
        try:
            data = MESSAGES.encode(question)
            MESSAGES.decode(data, len(data))  # otherwise the gateway would end the session
        except (ValueError, OverflowError, ProtocolError) as error:
            # Half a surrogate pair, a number of more than 64 bits, endlessly nested lists.
            raise GridError(f"{verb}: the message can't be sent: {error}") from None
        answer = self.checked(self.answer(question, timeout_s, at))
        if answer.code == Reason.JOB_NOT_FOUND:
            raise JobNotFound(answer.reason)
        if answer.code:
            raise GridError(answer.reason)
        return answer.value

    def answer(
        self,
        question: Ask | Cancel,
        timeout_s: float | None = None,
        at: str = "",
        *,
        kept: bool = False,
    ) -> Answer | None:
        """Send a request and wait; None when the time runs out, or the engine ends, before.

        A `kept` request is carried out even if its answer is not awaited.
        """
        with self._leading.lock:
            address = self._itinerary.address
            if self._dialogue.is_open and at not in ("", address):
                return elsewhere(0, at, address)
            number, answers = self._table.post(question, at)
            self._leading.transmit()
        try:
            self._leading.drive(lambda: bool(answers), timeout_s)
        finally:
            if not kept:
                with self._leading.lock:
                    self._table.forget(number)
        return answers[0] if answers else None

    def checked(self, answer: Answer | None) -> Answer:
        """Return an answer of the right gateway; raise the reason if there is none."""
        if answer is None:
            raise self._leading.error or GatewayUnreachable(
                f"the gateway at {self._itinerary.address} can't be reached any more"
            )
        if answer.code == ELSEWHERE:
            raise GatewayUnreachable(answer.reason)
        return answer
