"""Symphony's engine against the requirements of all engines."""

import cloudpickle
import pytest
import trio
from fakes.symphony import WAYS, StandIn, real_engine

from gateway.grids import engine_checks
from gateway.grids.engine_checks import ENGINE_CHECKS, KEEPING_CHECKS, SLOT_CHECKS, Stage

cloudpickle.register_pickle_by_value(engine_checks)
LIMIT_S = 40.0
CHECKS = [*ENGINE_CHECKS, *SLOT_CHECKS, *KEEPING_CHECKS]


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    made = StandIn(tmp_path_factory.mktemp("symphony"))
    yield made
    made.close()


def stage_of(engine, next_life):
    return Stage(engine, cloudpickle.dumps, cloudpickle.loads, next_life)


def settings_for(check):
    """The settings for a check of behaviour that an engine has only when it is configured."""
    return {"on_stop": "detach"} if check in KEEPING_CHECKS else {}


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("way", ["soamapi", pytest.param("rest", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__)
async def test_symphony(stand_in, way, check):
    said = []
    with trio.fail_after(LIMIT_S):
        how = settings_for(check)
        engine = stand_in.engine(way, said.append, **how)
        await check(stage_of(engine, lambda: stand_in.engine(way, said.append)))
    assert not stand_in.cluster.open_sessions, said


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__)
async def test_the_real_symphony(tmp_path, way, check):
    with trio.fail_after(10 * LIMIT_S):
        engine = real_engine(way, tmp_path, **settings_for(check))
        await check(stage_of(engine, lambda: real_engine(way, tmp_path)))
