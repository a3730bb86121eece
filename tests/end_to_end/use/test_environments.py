"""Environments as users meet them: images, packages, sandboxes; and their errors."""

import os
import sys
import zipfile

import pytest
from support.answers import answer
from support.command import quick
from support.members import MemberSite, dear_and_cheap, federate
from support.processes import SiteProcess, wait_until
from support.programs.containers import IMAGE, import_image, need, shut_uid

from federation.errors import EnvironmentFailed, JobRefused
from gateway.worker.isolation.identities import container_user

pytestmark = pytest.mark.real

NOBODY = 65534
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# Of the pool `local` that `gridfed up` has.
CONFIG = """
[[pool]]
name = "local"

[pool.environments]
images = ["localhost/gridfed-test:*"]
packages = true
links = "{links}"
cache = "{cache}"
"""
BUBBLEWRAP = """
[pool.environments]
sandbox = "bubblewrap"
packages = true
links = "{links}"
cache = "{cache}"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    need("podman", "runc")
    folder = tmp_path_factory.mktemp("site")
    import_image(folder)
    text = CONFIG.format(links=folder / "wheels", cache=folder / "cache")
    (folder / "wheels").mkdir()
    made = SiteProcess(folder, 2, config=text)
    yield made
    made.stop()


def where(_=None):
    return os.getuid(), sorted(os.listdir("/")), sys.version_info[:2]


def whose_python():
    return os.getuid(), sys.prefix


def double(x):
    return 2 * x


@pytest.mark.slow
def test_a_job_runs_in_the_image_that_it_names(site):
    with site.client() as client:
        view = client.options(environment=IMAGE)
        uid, roots, version = view.submit(where).result(300)
        assert (uid, version) == (container_user(""), sys.version_info[:2])
        assert "root" not in roots
        assert list(view.map(double, range(2000))) == [2 * x for x in range(2000)]
        assert client.submit(where).result(200)[0] == os.getuid()
        assert sorted(view.submit_job(double, range(5)).results()) == [0, 2, 4, 6, 8]


@pytest.mark.slow
def test_what_is_not_offered_is_refused_and_what_can_t_be_made_fails_with_its_reason(
    site, tmp_path, monkeypatch
):
    monkeypatch.setenv("GRIDFED_GATEWAY", site.address)
    with site.client() as client:
        with pytest.raises(
            JobRefused, match=r"does not allow image quay\.io/x:1, only localhost"
        ) as caught:
            client.options(environment="quay.io/x:1").submit(where).result(200)
        assert caught.value.code == "environment-missing"
        missing = client.options(environment="localhost/gridfed-test:none")
        with pytest.raises(EnvironmentFailed, match="is not on this host, and pull is 'never'"):
            missing.submit(where).result(300)
        path = tmp_path / "requirements.txt"
        path.write_text("no-such-package==1\n")
        with pytest.raises(EnvironmentFailed, match="the installation failed"):
            client.options(environment=path).submit(where).result(300)
        shown = answer(quick("pools", "--json"))
        assert "environment:image:localhost/gridfed-test:*" in str(shown)


@pytest.mark.thorough
def test_another_worker_makes_what_one_could_not(site, tmp_path):
    """Two workers offer it; one fails: the job is done, and no person has to act."""
    need("bwrap")
    with site.client() as client:
        rules = tmp_path / "rules.toml"
        rules.write_text('images = ["localhost/gridfed-test:*"]\nimage_python = "no-python"\n')
        from support.processes import Process

        worker = Process(
            [
                *("worker", "--gateway", site.address, "--pool", "local", "--slots", "8"),
                *("--name", "unfit", "--environments", str(rules)),
            ],
            tmp_path,
            "unfit",
        )
        try:
            wait_until(
                lambda: any(each["name"] == "unfit" for each in client.ask("workers")), "it joins"
            )
            view = client.options(environment=IMAGE)
            futures = [view.submit(double, x) for x in range(6)]
            assert [each.result(300) for each in futures] == [2 * x for x in range(6)]
        finally:
            worker.stop()


@pytest.mark.slow
def test_another_sites_work_runs_in_a_sandbox(tmp_path):
    need("bwrap")
    (tmp_path / "wheels").mkdir()
    text = BUBBLEWRAP.format(links=tmp_path / "wheels", cache=tmp_path / "cache")
    (tmp_path / "requirements.txt").write_text("# nothing but what a Python has\n")
    with dear_and_cheap(tmp_path, text) as (london, paris):
        with london.client() as client:
            view = client.options(sites=["paris"])
            uid, roots, _ = view.submit(where).result(300)
            assert uid == shut_uid("london")
            assert "home" not in roots
            # With packages of the job's own: of all sites paris alone installs any.
            view = client.options(environment=tmp_path / "requirements.txt")
            uid, prefix = view.submit(whose_python).result(300)
            assert uid == shut_uid("london")
            assert prefix.startswith(str(tmp_path / "cache"))
        with paris.client() as client:
            # Its own users' tasks are not: as a user without rights where a root may have one.
            own_uid = client.options(sites=["paris"]).submit(where).result(200)[0]
            assert own_uid in {os.getuid(), NOBODY}


def make_wheel(folder):
    """A package of nothing but a name."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "gridfed_probe-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("gridfed_probe.py", "")
        about = "Metadata-Version: 2.1\nName: gridfed_probe\nVersion: 1.0\n"
        wheel.writestr("gridfed_probe-1.0.dist-info/METADATA", about)
        made = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr("gridfed_probe-1.0.dist-info/WHEEL", made)
        wheel.writestr("gridfed_probe-1.0.dist-info/RECORD", "")


@pytest.mark.thorough
def test_what_no_worker_here_can_make_is_made_at_another_site_or_fails(tmp_path):
    make_wheel(tmp_path / "whole")
    (tmp_path / "empty").mkdir()

    def offers(wheels):
        table = f'packages = true\nlinks = "{tmp_path / wheels}"\ncache = "{tmp_path}/c-{wheels}"'
        return f"[pool.environments]\n{table}\n"

    (tmp_path / "requirements.txt").write_text("gridfed_probe==1.0\n")
    dear = MemberSite(tmp_path, "london", 1, "4 USD", offers("whole"))
    cheap = MemberSite(tmp_path, "paris", 1, "0.04 USD", offers("empty"))
    try:
        federate(dear, cheap)
        with cheap.client() as client:
            view = client.options(environment=tmp_path / "requirements.txt")
            found = view.submit(whose_python).result(300)[1]
            assert found.startswith(str(tmp_path / "c-whole"))
            with pytest.raises(EnvironmentFailed, match="the installation failed"):
                view.options(sites=["paris"]).submit(whose_python).result(300)
    finally:
        dear.gateway.stop()
        cheap.gateway.stop()
