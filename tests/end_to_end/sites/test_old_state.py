"""The state of two sites of an older version opens here, and their work goes on.

`data/before_renames.tar.xz` was made at commit 49ac01de by tests/support/old_state.py, which lists
its content.
"""

import contextlib
import json
import sys
import tarfile
from pathlib import Path

import pytest
from support.answers import answer
from support.members import MemberSite, run, settled
from support.processes import wait_until

from federation.signed.tokens import check_token
from gateway.config.site import load
from gateway.grids.kinds import Installed
from gateway.trust import book_file
from gateway.trust.standing import TrustLevel

PACKED = Path(__file__).with_name("data") / "before_renames.tar.xz"
BOUGHT, DONE, LONG = 500, 20, 16  # tasks of its jobs
PYTHON = (3, 11)  # that its jobs were made with


class OldSite(MemberSite):
    """A site whose folder was made before."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.folder, self._inside, self.starts = name, folder / name, (), 0
        self.where = ["--config-dir", str(self.folder)]
        self.config = self.folder / "gateway.toml"


@pytest.fixture
def old(tmp_path):
    """The folder of both sites."""
    with tarfile.open(PACKED) as archive:
        archive.extractall(tmp_path, filter="data")
    for path in tmp_path.rglob("*.toml"):
        path.write_text(path.read_text().replace("@FOLDER@", str(tmp_path)))
    return tmp_path


@pytest.fixture
def facts(old):
    """The facts that its maker recorded."""
    return json.loads((old / "facts.json").read_text())


@pytest.fixture
def sites(old):
    """London and Paris, started on that state, and connected at their new addresses."""
    london, paris = OldSite(old, "london"), OldSite(old, "paris")
    with contextlib.ExitStack() as stack:
        for site in (london, paris):
            site.start()
            stack.callback(site.gateway.stop)
        run("join", run("invite", *paris.where).splitlines()[0], *london.where)
        yield london, paris


@pytest.mark.real
@pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="the jobs wait for Python 3.11")
def test_jobs_of_an_older_version_go_on_at_both_sites(sites, facts):
    london, paris = sites
    with london.client() as client:
        jobs = {name: client.job(job) for name, job in facts["jobs"].items()}
        assert jobs["done"].state == "done"
        assert jobs["done"].cost().nanos == facts["cost_nanos"] > 0
        assert sorted(jobs["done"].results()) == [n * n for n in range(DONE)]
        for name in ("far", "near"):
            assert sorted(jobs[name].results()) == [n * n for n in range(LONG)]
    wait_until(lambda: settled(london, paris), "the books to agree")
    # Each task of the job abroad is paid once, whichever version ran it; and the reservation, when
    # its time is over.
    reserved = answer(run("reservations", "--all", "--json", "--gateway", london.address))
    is_billed = reserved[0]["state"] == "ended"
    assert london.deals("buy")["settled"] == BOUGHT + DONE + LONG + is_billed


@pytest.mark.real
def test_books_of_an_older_version_are_migrated_and_whole(sites, facts):
    london, paris = sites
    reserved = run("reservations", "--all", "--json", "--gateway", london.address)
    known = ("id", "site", "pool", "slots", "from_s", "until_s", "total_nanos")
    [before], [after] = facts["reserved"], answer(reserved)
    assert {key: after[key] for key in known} == {key: before[key] for key in known}
    [budget] = [each for each in london.ask("budgets") if each["name"] == "risk"]
    assert int(budget["spent_nanos"]) >= facts["cost_nanos"]
    for site in (london, paris):
        site.gateway.stop()
        assert "all checks passed" in run("audit", "--config", str(site.config))


@pytest.mark.real
def test_new_tokens_of_old_keys_are_accepted(sites, tmp_path):
    london, _paris = sites
    token = run("token", "--user", "ann", "--scopes", "report", *london.where).splitlines()[-1]
    kept = tmp_path / "token"
    kept.write_text(token)
    kept.chmod(0o600)
    told = run("jobs", "--json", "--gateway", london.address, "--token-file", str(kept))
    assert answer(told) == []  # ann has none; without a token, its own user has three


def test_an_old_token_is_good_until_it_expires(old, facts):
    book, _ = book_file.load(old / "london" / "federation" / "trust.json")
    token = check_token(facts["token"], book, facts["made_s"] + 60)
    assert (token.user, token.projects) == ("ann", frozenset({"risk"}))
    assert book.level("paris") is TrustLevel.APPROVED


def test_every_setting_of_an_older_version_is_read_and_means_the_same(old, tmp_path):
    run("init", "--site", "london", "--config-dir", str(tmp_path / "new"))
    written = tmp_path / "new" / "gateway.toml"
    before, now = load(str(old / "whole.toml"), Installed()), load(str(written), Installed())
    for name in ("rules", "deals", "preferences", "books", "alerts", "database_wait_s", "others"):
        assert getattr(before, name) == getattr(now, name), name
