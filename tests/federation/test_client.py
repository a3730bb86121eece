"""What of the client can be seen without a gateway."""

import threading
from concurrent.futures import Future

from federation.client import TaskFuture


class EngineWithNothing:
    """As much of an engine as a new future needs."""

    condition = threading.Condition()


def test_a_task_future_begins_as_every_other_future_does():
    # It does without Future.__init__; a Python that adds an attribute must fail here.
    ours, theirs = vars(TaskFuture(EngineWithNothing(), None)), vars(Future())
    assert set(theirs) <= set(ours)
    kept = set(theirs) - {"_condition"}
    assert {name: ours[name] for name in kept} == {name: theirs[name] for name in kept}
    assert type(ours["_condition"]) is type(theirs["_condition"])
