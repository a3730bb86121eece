"""Engines against what every engine must do."""

import cloudpickle
import pytest
import trio
from engine_support import ReferenceEngine
from symphony_support import WAYS, StandIn, real_engine

from gateway.grids import engine_checks
from gateway.grids.engine_checks import ENGINE_CHECKS, SLOT_CHECKS, Stage

cloudpickle.register_pickle_by_value(engine_checks)
LIMIT_S = 40.0
UNDER_WAY = (
    engine_checks.what_is_cancelled_ends,
    engine_checks.what_has_begun_is_left,
    engine_checks.it_runs_again,
)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    made = StandIn(tmp_path_factory.mktemp("symphony"))
    yield made
    made.close()


def stage_of(engine):
    return Stage(engine, cloudpickle.dumps, cloudpickle.loads)


@pytest.mark.parametrize("how", [{}, {"early": True}, {"echoes": True}], ids=str)
@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda each: each.__name__)
async def test_the_reference_engine(check, how):
    if how.get("early") and check in UNDER_WAY:
        pytest.skip("what runs at once is never under way")
    with trio.fail_after(LIMIT_S):
        await check(stage_of(ReferenceEngine(**how)))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["soamapi", pytest.param("rest", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("check", [*ENGINE_CHECKS, *SLOT_CHECKS], ids=lambda each: each.__name__)
async def test_symphony(stand_in, way, check):
    said = []
    with trio.fail_after(LIMIT_S):
        await check(stage_of(stand_in.engine(way, said.append)))
    assert not stand_in.cluster.open_sessions, said


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("check", [*ENGINE_CHECKS, *SLOT_CHECKS], ids=lambda each: each.__name__)
async def test_the_real_symphony(tmp_path, way, check):
    with trio.fail_after(10 * LIMIT_S):
        await check(stage_of(real_engine(way, tmp_path)))
