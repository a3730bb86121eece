"""The requests of a client that its gateway has not answered. Pure."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from federation.messages.messages import Answer, Cancel
from federation.ranges import Range
from federation.sessions.handshake import Dialogue

ELSEWHERE: Final = "elsewhere"  # the code of a request to a gateway that the client has left


class RequestTable:
    """The requests under way; those that a new session has to repeat.

    Each has a list that takes its answer, and perhaps the address of the only gateway that may give
    it.
    """

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._requests: dict[int, tuple[Any, list[Answer], str]] = {}
        self._number = 0

    @property
    def questions(self) -> list[Any]:
        """The requests that have no answer yet, the oldest first."""
        return [question for question, _, _ in self._requests.values()]

    def post(self, question: Any, at: str = "") -> tuple[int, list[Answer]]:
        """Send the gateway a request; the list takes its answer."""
        self._number += 1
        asked = replace(question, request=self._number)
        answers: list[Answer] = []
        self._requests[self._number] = asked, answers, at
        self._dialogue.post(asked)
        return self._number, answers

    def forget(self, number: int) -> None:
        """Await no answer any more, if none has come."""
        self._requests.pop(number, None)

    def hear(self, answer: Answer) -> Any:
        """Take an answer; return its request, or None if nobody awaits it.

        A cancel is over then: the thread that asked may have stopped waiting. Other requests stay
        until `forget`.
        """
        asked = self._requests.get(answer.request)
        if asked is None:
            return None
        question, answers, _ = asked
        answers.append(answer)
        if isinstance(question, Cancel):
            del self._requests[answer.request]
        return question

    def restart(self, address: str, taken_back: Callable[[Cancel], list[Range]]) -> None:
        """Begin a new session, with the gateway at an address: repeat what still awaits an answer.

        `taken_back` ends the calls of a cancel that no gateway has in this session, and returns
        them: that is its answer. The gateway is told of it all the same: it may have begun them for
        the last session, if it is that one's. A request for another gateway is answered by
        `elsewhere`.
        """
        for question, answers, at in list(self._requests.values()):
            taken = taken_back(question) if isinstance(question, Cancel) else []
            if taken:
                answers.append(Answer(question.request, "", "", {"taken": taken}))
                del self._requests[question.request]
                if at in ("", address):
                    self._dialogue.post(replace(question, request=0))
            elif at in ("", address):
                self._dialogue.post(question)
            else:
                answers.append(elsewhere(question.request, at, address))


def elsewhere(number: int, at: str, address: str) -> Answer:
    """Return the answer to a request that only the gateway `at` may give."""
    reason = f"the gateway at {at} can't be reached; this client is now connected to {address}"
    return Answer(number, ELSEWHERE, reason, None)
