"""Questions for tickets, in turns (gateway.peering.ticket_turns)."""

from federation.messages.transferring import DIGESTS_MAX, AskTickets
from gateway.peering.ticket_turns import TURN, WAITING_MAX, TicketTurns


def ask(number, request=1):
    return AskTickets(request, "c", [b"d"] * number)


def answer(question):
    part = question.turn
    question.tickets += part
    question.reasons += [""] * len(part)


def test_sites_take_turns_and_the_questions_of_one_are_in_order():
    turns, taken = TicketTurns(), []
    turns.add("paris", ask(2 * TURN, 1))
    turns.add("paris", ask(1, 2))
    turns.add("rome", ask(TURN + 1, 3))
    while (question := turns.take()) is not None:
        answer(question)
        taken.append((question.message.request, len(question.tickets)))
        if not question.is_answered:
            turns.put_back(question)
    assert taken == [(1, TURN), (3, TURN), (1, 2 * TURN), (3, TURN + 1), (2, 1)]


def test_an_empty_question_is_answered_at_once():
    turns = TicketTurns()
    turns.add("paris", ask(0))
    assert turns.take().is_answered


def test_a_site_that_asks_for_too_much_keeps_no_other_from_asking():
    turns = TicketTurns()
    asked = 0
    while turns.add("paris", ask(DIGESTS_MAX)):
        asked += DIGESTS_MAX
    assert WAITING_MAX - 2 * DIGESTS_MAX < asked <= WAITING_MAX
    assert turns.add("rome", ask(DIGESTS_MAX))
    turns = TicketTurns()
    for _ in range(WAITING_MAX):
        assert turns.add("paris", ask(0))
    assert not turns.add("paris", ask(0))
