"""Real processes for the tests: a gateway with workers, started and ended here."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests_support import SiteProcess

from federation import Client

# Tests assert nothing of time: the machine is shared.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")


@pytest.fixture(scope="session")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteProcess]:
    """One site with two slots for all tests that do no harm to it."""
    site = SiteProcess(tmp_path_factory.mktemp("site"), 2)
    yield site
    site.stop()


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
        site.stop()
