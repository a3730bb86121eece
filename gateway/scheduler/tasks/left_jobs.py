"""Orders about attached jobs that lost their client or gateway. Pure.

Such a job has ended here, as abandoned or lost, and is open again if its client returns. An order
about it is for that return: a cancelled one is not opened again, and its client hears so; a held
one begins no task until it is released. The order is in the books before it is answered, and is
remembered here as well, because a client may return before it is read.
"""

from collections.abc import Callable, Mapping
from typing import Any

from federation.messages.messages import Answer
from federation.messages.wire import pack
from gateway.ledger.db.jobs.records import LeftJobCancelled, LeftTermsKept
from gateway.scheduler.model.effects import Effect, Write
from gateway.scheduler.model.events import CancelAsked, LeftJob, LeftJobChanged
from gateway.scheduler.model.stored_terms import terms_plain
from gateway.scheduler.quotas.accounts import BrokerClient
from gateway.scheduler.tasks.end_texts import cancelled_text
from gateway.scheduler.tasks.history import History


class LeftJobs:
    """Carries out orders about attached jobs that have ended, in case their clients return.

    Args:
        clients: the present clients, which may ask.
        history: remembers ends of jobs, and the terms of attached jobs.
        effects: the list to which records are appended.
        tell: sends a client a message.
        log: (client, text, is_refused): logs an order.
    """

    def __init__(
        self,
        clients: Mapping[int, BrokerClient],
        history: History,
        effects: list[Effect],
        tell: Callable[[int, Any], None],
        log: Callable[[int, str, bool], None],
    ) -> None:
        self._clients = clients
        self._history = history
        self._effects = effects
        self._tell = tell
        self._log = log

    def of(self, event: CancelAsked) -> LeftJob | None:
        """Return the job that is to be cancelled, if its client may return and the asker may."""
        asking = self._clients.get(event.client)
        if asking is None or event.ranges:
            return None
        has_ended = self._history.has_ended(event.job)
        left = self._history.left(event.job) if has_ended else event.left
        may_cancel = left is not None and (asking.is_operator or asking.user == left.user)
        return left if may_cancel else None

    def cancel(self, event: CancelAsked, left: LeftJob) -> None:
        """Cancel a job of `of`: its client hears so when it returns."""
        asking, title = self._clients[event.client], left.title(event.job)
        reason = cancelled_text(asking.user, is_owner=asking.user == left.user)
        self._history.cancel_left(event.job, left, reason)
        self._effects.append(Write(LeftJobCancelled(event.job, reason), durable=True))
        self._log(event.client, f"{title}: cancelled, in case its client returns", False)
        if event.request:
            told = f"{title}, whose client is away and hears so when it returns"
            value = {"taken": [], "title": told}
            self._tell(event.client, Answer(event.request, "", "", value))

    def change(self, event: LeftJobChanged) -> None:
        """Give a job another hold or priority."""
        self._history.change_left(event.job, event.spec)
        record = LeftTermsKept(event.job, pack(terms_plain(event.spec)))
        self._effects.append(Write(record, durable=True))
