"""A call passes no more modules than it needs from `Client.submit` to the slot and back."""

import pytest
from support.callpath import trace_call

MODULES_MAX = 30
PASSED = (
    *("federation.client", "federation.sessions.nng", "gateway.runtime.server"),
    *("gateway.scheduler.broker", "gateway.worker.agent", "gateway.worker.slot.slot"),
)


@pytest.mark.real
def test_a_call_passes_few_modules_and_comes_back_to_none_but_over_the_wire():
    path = trace_call()
    assert set(PASSED) <= set(path.modules)  # or else a process was not traced
    assert path.returns == []
    assert len(path.modules) <= MODULES_MAX, path.modules
