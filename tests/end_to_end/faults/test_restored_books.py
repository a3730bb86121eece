"""A site that starts on an old copy of its books learns it from its partner, and says so."""

import contextlib

import pytest
from support.members import dear_and_cheap, run, settled
from support.processes import wait_until

from gateway.config.site import load

pytestmark = pytest.mark.real


def square(x):
    return x * x


def work(buyer, seller, tasks):
    """Have work done at the seller, and wait until both have booked it."""
    with buyer.client() as client:
        view = client.options(sites=[seller.name])
        assert list(view.map(square, range(tasks))) == [x * x for x in range(tasks)]
    wait_until(lambda: settled(buyer, seller), "the books to agree")


@pytest.mark.parametrize("restored", ["london", "paris"])
def test_a_site_on_yesterdays_books_makes_no_contracts_until_it_is_accepted(tmp_path, restored):
    with dear_and_cheap(tmp_path) as (london, paris):
        for each in (london, paris):
            each.keep_port()
        site, other = (london, paris) if restored == "london" else (paris, london)
        work(london, paris, 5)
        copy = tmp_path / "copy"
        run("db", "backup", str(copy), "--config", str(site.config))
        work(london, paris, 7)
        site.gateway.kill()
        site.gateway.process.wait()
        books = load(str(site.config)).state_path
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                (books / f"gridfed.db{suffix}").unlink()
        run("db", "restore", "--yes", str(copy), "--config", str(site.config))
        site.start()

        def found():
            return site.ask("status")["older_books"]

        wait_until(found, "it to learn that its books are an old copy")
        [why] = found()
        assert other.name in why
        assert "our books lack " in why
        assert not other.ask("status")["older_books"]
        said = run("reconcile", other.name, "--gateway", site.address, code=1)
        assert "differs" in said
        run("reconcile", other.name, "--accept", "--gateway", site.address)
        assert not found()
        with london.client() as client:
            view = client.options(sites=["paris"])
            assert list(view.map(square, range(3))) == [0, 1, 4]
