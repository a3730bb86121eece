"""Real processes for the tests: a gateway with workers, started and ended here."""

import contextlib
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from support import compiled_sql, pure_guard
from support.processes import InnerSite, SiteProcess
from support.programs.postgres import Postgres
from support.suite_outcomes import Outcomes

from federation import Client
from gateway.config.site import PoolConfig

# Tests assert nothing of time: the machine is shared. The examples are the same in every run, so
# that a failure is of the change at hand; `make explore` looks for new ones.
settings.register_profile("shared", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "shared"))

FAILED = pytest.StashKey[bool]()
LOG_LINES = 25
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which `tests.suite` gets the results of a run."""
    parser.addoption("--outcome", type=Path, help="write counts and failed tests to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests' files in memory, where there is room: most of them sync databases."""
    compiled_sql.share()
    pure_guard.install()
    if (outcome := config.getoption("--outcome")) is not None and not hasattr(
        config, "workerinput"
    ):
        config.pluginmanager.register(Outcomes(outcome))
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        room = os.statvfs(MEMORY)
        if room.f_bavail * room.f_frsize >= MEMORY_BYTES and not room.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let only tests that are marked `real` start processes, open sockets and sleep."""
    pure_guard.begin(item)
    try:
        return (yield)
    finally:
        pure_guard.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note failures, for `shared_site`, and show the last output of its processes."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    folder: Path | None = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        for log in sorted(folder.rglob("*.log")):
            with contextlib.suppress(OSError):  # a process may be tidying up
                lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
                report.sections.append((f"the end of {log.relative_to(folder)}", "\n".join(lines)))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Let an async test that is skipped say why: pytest-trio 0.8 drops the reason."""
    try:
        return (yield)
    except pytest.skip.Exception as bare:
        skipped: BaseException | None = bare.__context__
        while isinstance(skipped, BaseExceptionGroup):
            skipped = skipped.exceptions[0]
        if bare.msg or not isinstance(skipped, pytest.skip.Exception):
            raise
        raise skipped from None


@pytest.fixture(scope="session")
def lasting_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SiteProcess]]:
    """The site that `shared_site` keeps from test to test, once one has asked for it."""
    kept: list[SiteProcess] = []
    yield kept
    for site in kept:
        site.stop()


@pytest.fixture
def shared_site(
    request: pytest.FixtureRequest,
    lasting_site: list[SiteProcess],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SiteProcess]:
    """One site with two slots for all tests that do no harm to it.

    The next test gets another one when this one fails: leftovers may keep slots for ever, and all
    later tests would fail as well, each at its time limit.
    """
    if not lasting_site:
        lasting_site.append(SiteProcess(tmp_path_factory.mktemp("site"), 2))
    yield lasting_site[0]
    if request.node.stash.get(FAILED, False):
        lasting_site.pop().kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for all tests that do no harm to it."""
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture
def client(shared_site: SiteProcess) -> Iterator[Client]:
    """A client of the shared site."""
    with shared_site.client() as made:
        yield made


@pytest.fixture
def local_gateway(shared_site: SiteProcess) -> str:
    """The address of the shared site."""
    return shared_site.address


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., SiteProcess]]:
    """Make a site of one's own, to be harmed."""
    made: list[SiteProcess] = []

    def make(slots: int = 1, *extra: str, config: str = "") -> SiteProcess:
        folder = tmp_path / f"s{len(made)}"
        folder.mkdir()
        site = SiteProcess(folder, slots, *extra, config=config)
        made.append(site)
        return site

    yield make
    for site in made:
        site.end()


@pytest.fixture
def make_inner(tmp_path: Path) -> Iterator[Callable[..., InnerSite]]:
    """Start a site in this very process; `slots` gives it a local pool."""
    made: list[InnerSite] = []

    def make(slots: int = 0, **config: Any) -> InnerSite:
        pools = (PoolConfig("local", "local", slots),) if slots else (PoolConfig("workers"),)
        made.append(InnerSite(tmp_path, pools=pools, **config))
        return made[-1]

    yield make
    for site in made:
        site.stop()
