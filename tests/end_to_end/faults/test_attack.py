"""A task that another site has sent tries to become the site that runs it, as an attacker would.

Real processes, at each level that promises to stop the attack; unpromised cases are not run.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest
from support.members import MemberSite, federate, run
from support.processes import wait_until
from support.programs.containers import need, shut_uid

from federation import Client
from federation.address import NoToken
from federation.errors import GridError
from gateway.config.environments import RISK

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SECRET = "the-secret-of-london-" + "0123456789abcdef" * 3
BUBBLEWRAP = '[pool.environments]\nsandbox = "bubblewrap"\n'
PYTHON = f"/tmp/gridfed-test-python-{os.getpid()}"
PRIVATE_FILES = (
    "federation/current.pem",
    "federation/trust.json",
    "gateway.toml",
    "state/gridfed.db",
    "gateway1.log",
)
USER = 'user = "nobody"\n[pool.environments]\nsandbox = "user"\n'


def attack(folder, sockets, secret):
    """All access to the site: the secrets of it that are found here, and our identity."""
    dialled = {*sockets, os.environ.get("GRIDFED_GATEWAY", "")} - {""}
    had = [
        *("a variable" for name, value in os.environ.items() if secret in name + value),
        *(str(path) for path in Path("/proc").glob("[0-9]*/environ") if holds(path, secret)),
        *(str(path) for path in Path("/proc").glob("[0-9]*/cmdline") if holds(path, secret)),
        *(name for name in PRIVATE_FILES if can_read(Path(folder, name))),
        *(each for each in descriptors() if folder in each),
        *(f"an administrator at {each}" for each in sorted(dialled) if order_a_token(each)),
        *(["the worker's memory"] if can_read(Path(f"/proc/{os.getppid()}/mem")) else []),
        *(["the worker's life"] if can_end_worker() else []),
    ]
    return had, os.getuid()


def holds(path, secret):
    try:
        return secret.encode() in path.read_bytes()
    except OSError:
        return False


def can_read(path):
    try:
        path.open("rb").close()
    except OSError:
        return False
    return True


def descriptors():
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{number}")


def can_end_worker():
    """Whether a signal would reach the worker: in a sandbox our parent is another."""
    try:
        os.kill(os.getppid(), 0)
        return Path(f"/proc/{os.getppid()}/comm").read_text() == "gridfed-worker\n"
    except OSError:
        return False


def order_a_token(address):
    """As `gridfed token --user root --scopes admin,submit,report` does."""
    for token in (NoToken(), None):
        try:
            with Client(address, token=token, connect_timeout_s=3.0) as client:
                details = {"user": "root", "scopes": ["admin"], "expires_s": 3600.0}
                client.ask("token", **details)
                return True
        except (GridError, OSError):
            continue
    return False


def hidden_home():
    """A command that runs another where every user can read this Python.

    It may lie below a folder that only we may enter: that is made anew, with nothing else in it.
    """
    python = Path(sys.base_prefix)
    shut = [each for each in python.parents if not each.stat().st_mode & 0o001]
    if not shut:
        return []
    top = shut[-1]
    script = (
        'set -e; mkdir -p "$1"; mount --bind "$2" "$1"; mount -t tmpfs -o mode=755 none "$3"; '
        'mkdir -p "$2"; mount --bind "$1" "$2"; shift 3; exec "$@"'
    )
    return ["unshare", "-m", "sh", "-c", script, "sh", PYTHON, python, top]


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Make London, which runs Paris' work, with such a pool."""
    monkeypatch.setenv("GRIDFED_SECRET", SECRET)
    made = []

    def make(extra, inside=(), hidden=0):
        london = MemberSite(tmp_path, "london", 2, "0.04 USD", extra, inside=inside)
        made.append(london)
        paris = MemberSite(tmp_path, "paris", 1, "4 USD")
        made.append(paris)
        federate(london, paris, hidden=hidden)
        return london, paris

    yield make
    for each in made:
        each.gateway.stop()


def try_it(london, paris):
    sockets = [each for each in london.ready["addresses"] if each.startswith("ipc")]
    assert order_a_token(sockets[0])  # we may: we are its owner
    found, _ = attack(str(london.folder), [], SECRET)
    assert {*PRIVATE_FILES} <= {*found}  # and there is something to be had
    with paris.client(user="mallory") as client:
        view = client.options(sites=["london"])
        return view.submit(attack, str(london.folder), sockets, SECRET).result(300)


def test_bubblewrap_stops_it(sites):
    need("bwrap")
    london, paris = sites(BUBBLEWRAP)
    assert try_it(london, paris) == ([], shut_uid("paris"))
    assert pool_of(london)["others_work"] == ["bubblewrap"]


def test_a_foreign_user_is_shut_in_as_its_site_is(sites):
    """A user with another site's token sends that site's code, and so do the user's tasks."""
    need("bwrap")
    london, paris = sites(BUBBLEWRAP.replace("[pool.env", 'user = "none"\n[pool.env'))
    assert RISK not in run("trust", "paris", "--users", *london.where)
    token = run("token", "--user", "eve", "--sites", "london", *paris.where).split()[0]
    sockets = [each for each in london.ready["addresses"] if each.startswith("ipc")]
    with london.client(token=token) as client:
        found = client.submit(attack, str(london.folder), sockets, SECRET).result(300)
        assert found == ([], shut_uid("paris"))
        assert {row["user"] for row in client.ask("jobs")} == {"eve@paris"}
    with london.client(user="ada") as client:
        assert client.submit(os.getuid).result(300) == os.getuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run slots as another user")
def test_another_user_stops_it(sites):
    need("unshare", "setpriv")
    inside = hidden_home()
    if inside and subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    london, paris = sites(USER, inside)
    try:
        assert try_it(london, paris) == ([], 65534)
        assert pool_of(london)["others_work"] == ["user"]
        # What tasks of its own users are promised as well; and they are clients all the same.
        with london.client(user="ada") as client:
            assert client.submit(os.getuid).result(100) == 65534
            assert client.submit(nested).result(100) == (8, "ada")
    finally:
        if inside:
            os.rmdir(PYTHON)  # where it was mounted, in a namespace that is gone


def nested():
    with Client() as client:
        value = client.options(name="nested").submit(pow, 2, 3).result()
        return value, next(each["user"] for each in client.ask("jobs") if each["name"] == "nested")


def test_a_pool_that_shuts_nothing_in_takes_no_work_of_others(sites):
    """Unless its owner has accepted that in words: then status and log say so."""
    london, paris = sites('user = "none"\n[pool.environments]\nsandbox = "none"\n', hidden=1)
    assert "it takes no work of other sites" in london.gateway.text()
    assert pool_of(london)["others_work"] == ["refused"]
    with london.client() as client:
        assert client.submit(pow, 2, 3).result() == 8  # its own it runs
    said = run("trust", "paris", "--users", *london.where)
    assert "warning: pool local: it takes no work of other sites" in said
    token = run("token", "--user", "eve", "--sites", "london", *paris.where).split()[0]
    with london.client(token=token) as client, pytest.raises(GridError):
        client.options(sites=["london"]).submit(os.getuid).result(300)
    wait_until(lambda: "london" in {row["site"] for row in paris.ask("sites")}, "its advert")
    assert {row["site"] for row in paris.ask("pools")} == {"paris"}, "it is not shown to others"
    assert {row["site"] for row in london.ask("pools")} >= {"london"}
    said = run("trust", "paris", "--may-send", "all", *london.where)
    assert "warning: pool local: it takes no work of other sites" in said


def test_an_owner_who_accepts_the_risk_is_told_of_it(sites):
    london, paris = sites("")  # as all members of tests are
    assert pool_of(london)["others_work"] == ["none"]
    wait_until(lambda: RISK in london.gateway.text(), "the log says so")
    with paris.client() as client:
        assert client.options(sites=["london"]).submit(pow, 2, 3).result(300) == 8
    told = "warning: pool local: tasks of this site's users run there as the gateway's user"
    assert told in run("token", "--user", "ada", *london.where)
    assert told not in run("token", "--user", "ada", "--scopes", "report", *london.where)
    assert told not in run("token", "--user", "ada", "--sites", "paris", *london.where)
    assert f"warning: pool local: {RISK}" in run(
        "trust", "paris", "--may-send", "all", *london.where
    )


def pool_of(site):
    (pool,) = site.ask("status")["pools"]
    return pool
