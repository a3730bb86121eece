"""Engines against the requirements of all engines."""

import cloudpickle
import pytest
import trio
from fakes.engine import Farm, KeepingEngine, ReferenceEngine

from gateway.grids import engine_checks
from gateway.grids.engine_checks import (
    ENGINE_CHECKS,
    KEEPING_CHECKS,
    Stage,
    why_nothing_is_kept,
)

cloudpickle.register_pickle_by_value(engine_checks)
LIMIT_S = 40.0
UNDER_WAY = (
    engine_checks.what_is_cancelled_ends,
    engine_checks.what_has_begun_is_left,
    engine_checks.it_runs_again,
)


def stage_of(engine, next_life=None):
    return Stage(engine, cloudpickle.dumps, cloudpickle.loads, next_life)


@pytest.mark.parametrize("how", [{}, {"early": True}, {"echoes": True}], ids=str)
@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda each: each.__name__)
async def test_the_reference_engine(check, how):
    if how.get("early") and check in UNDER_WAY:
        pytest.skip("what runs at once is never under way")
    with trio.fail_after(LIMIT_S):
        await check(stage_of(ReferenceEngine(**how)))


def test_an_engine_that_keeps_nothing_says_so():
    assert "not Keeping" in why_nothing_is_kept(ReferenceEngine())
    assert "settings" in why_nothing_is_kept(KeepingEngine(Farm(), detaches=False))


@pytest.mark.parametrize("check", KEEPING_CHECKS, ids=lambda each: each.__name__)
async def test_a_reference_engine_that_keeps(check):
    farm = Farm()
    assert not why_nothing_is_kept(KeepingEngine(farm))
    with trio.fail_after(LIMIT_S):
        await check(stage_of(KeepingEngine(farm), lambda: KeepingEngine(farm)))
    farm.pool.shutdown()
