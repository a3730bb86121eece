"""Python packages that a job brings: really installed, from a folder of wheels, by pip and uv."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import cloudpickle
import psutil
import pytest
from support.processes import wait_until
from support.programs.containers import need, shut_uid

from federation.messages.environments import Environment, wrap
from gateway.config.environments import EnvironmentRules
from gateway.worker.isolation import packages

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.slow, pytest.mark.real]
PYTHON = packages.PYTHON


def make_wheel(folder: Path, version: str) -> None:
    """A package `gridfed_probe` that knows its version."""
    folder.mkdir(exist_ok=True)
    info = f"gridfed_probe-{version}.dist-info"
    with zipfile.ZipFile(folder / f"gridfed_probe-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("gridfed_probe.py", f"VERSION = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Name: gridfed_probe\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        names = ("gridfed_probe.py", f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD")
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))


def requirements(text, python=PYTHON):
    return Environment(
        packages="requirements", files=(("requirements.txt", text.encode()),), python=python
    )


def with_packages(function, text, python=PYTHON):
    return wrap(cloudpickle.dumps(function), requirements(text, python))


def version():
    import gridfed_probe

    return gridfed_probe.VERSION, sys.prefix


@pytest.fixture
def rules(tmp_path):
    for number in ("1.0", "2.0"):
        make_wheel(tmp_path / "wheels", number)
    return EnvironmentRules(
        packages=True, links=str(tmp_path / "wheels"), cache=str(tmp_path / "cache")
    )


@pytest.fixture(params=[pytest.param("pip", marks=pytest.mark.thorough), "uv"])
def tool(request, monkeypatch):
    if request.param == "uv":
        if not packages.find_uv():
            pytest.skip("uv is not installed (pip install uv)")
    else:
        monkeypatch.setattr(packages, "find_uv", lambda: "")
    return request.param


def test_they_are_installed_once_and_found_by_their_content(rules, tool):
    first = packages.provide(requirements("gridfed_probe==1.0"), rules)
    began_ns = (first / "pyvenv.cfg").stat().st_mtime_ns
    assert packages.provide(requirements("gridfed_probe==1.0"), rules) == first
    assert (first / "pyvenv.cfg").stat().st_mtime_ns == began_ns
    second = packages.provide(requirements("gridfed_probe==2.0"), rules)
    assert second != first
    for place, expected in ((first, "1.0"), (second, "2.0")):
        told = subprocess.run(
            [place / "bin" / "python", "-c", "import gridfed_probe as g; print(g.VERSION)"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert told.stdout.strip() == expected
    assert not [each for each in Path(rules.cache, "packages").iterdir() if ".making" in each.name]


def test_what_can_t_be_installed_says_why_and_leaves_nothing(rules, tool):
    with pytest.raises(
        packages.PackagesUnavailable, match=r"(?s)installation failed.*gridfed.probe"
    ):
        packages.provide(requirements("gridfed_probe==9.9"), rules)
    assert not list(Path(rules.cache, "packages").iterdir())


def test_nothing_is_built_unless_the_owner_says_so(rules, tool, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "setup.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\n"
        "from setuptools import setup\nsetup(name='gridfed_source', version='1.0')\n"
    )
    import tarfile

    with tarfile.open(tmp_path / "wheels" / "gridfed_source-1.0.tar.gz", "w:gz") as tar:
        tar.add(source, "gridfed_source-1.0")
    with pytest.raises(packages.PackagesUnavailable):
        packages.provide(requirements("gridfed_source==1.0"), rules)
    assert not (tmp_path / "ran").exists()


def test_another_python_and_other_indexes_are_refused(rules):
    with pytest.raises(packages.PackagesUnavailable, match=r"for Python 3\.99"):
        packages.provide(requirements("gridfed_probe", "3.99"), rules)
    with pytest.raises(packages.PackagesUnavailable, match="packages is not true"):
        packages.provide(requirements("gridfed_probe"), EnvironmentRules())


def test_what_was_not_used_for_a_day_goes_when_there_are_too_many(tmp_path):
    cache = tmp_path / "packages"
    for number in range(4):
        (cache / str(number)).mkdir(parents=True)
        used_s = 1e9 + number * 80_000
        os.utime(cache / str(number), (used_s, used_s))
    # Of agents that were killed, and one that is at work.
    for name, used_s in ((".making-old", 1e9), (".making-new", 1e9 + 200_000)):
        (cache / name).mkdir()
        os.utime(cache / name, (used_s, used_s))
    packages._forget_oldest(cache, 2, cache / "3")
    assert sorted(each.name for each in cache.iterdir()) == [".making-new", "2", "3"]


def test_commands_say_where_from_and_build_nothing(tmp_path):
    folder, target = tmp_path, tmp_path / "venv"
    rules = EnvironmentRules(packages=True, links="/srv/wheels")
    for uv in ("", "/bin/uv"):
        _, fill = packages.commands(rules, folder / "requirements.txt", target, uv)
        assert "--no-index" in fill
        assert fill[fill.index("--find-links") + 1] == "/srv/wheels"
        assert ("--no-build" in fill) if uv else (":all:" in fill)
    _, fill = packages.commands(
        EnvironmentRules(index="https://a/simple"), folder, target, "/bin/uv"
    )
    assert fill[-2:] == ["--default-index", "https://a/simple"]


def test_what_is_made_can_be_read_by_nobody_whatever_our_umask_is(rules, tool):
    """As in a sandbox of root's on an instance of EC2, whose user data sets 077."""
    before = os.umask(0o077)
    try:
        place = packages.provide(requirements("gridfed_probe==1.0"), rules)
    finally:
        os.umask(before)
    made = [path for path in (place, *place.rglob("*")) if not path.is_symlink()]
    wanted = {path: 0o005 if path.is_dir() else 0o004 for path in made}
    assert not [path for path in made if path.stat().st_mode & wanted[path] != wanted[path]]
    assert (place / "bin" / "python").stat().st_mode & 0o001


def test_what_takes_too_long_ends_with_all_that_it_has_started(rules, tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "find_uv", lambda: "")
    pids = tmp_path / "pids"
    hangs = f"sleep 600 & echo $! > {pids}.new; mv {pids}.new {pids}; wait"
    monkeypatch.setattr(packages, "commands", lambda *_: [["/bin/sh", "-c", hangs]])
    with pytest.raises(packages.PackagesUnavailable, match=r"timed out after 3 s \(build_s\)"):
        packages.provide(requirements("gridfed_probe==1.0"), replace(rules, build_s=3.0))
    pid = int(pids.read_text())
    wait_until(lambda: not psutil.pid_exists(pid) or is_zombie(pid), "what it had started ends")
    assert not list(Path(rules.cache, "packages").iterdir())


def is_zombie(pid):
    try:
        return psutil.Process(pid).status() == "zombie"
    except psutil.NoSuchProcess:
        return True


@pytest.mark.thorough
def test_tasks_run_with_their_packages_and_ours_without(gateway, start_agent, rules):
    start_agent(gateway, 1, "--environments", rules.to_json())
    worker = gateway.worker()
    assert worker.hello.about["tags"]["environment:packages:requirements"] is True
    work = gateway.work(worker, with_packages(version, "gridfed_probe==1.0"), [()])
    found, prefix = work.values()[0]
    assert found == "1.0"
    assert prefix.startswith(rules.cache)
    work = gateway.work(worker, with_packages(version, "gridfed_probe==2.0"), [()])
    assert work.values()[0][0] == "2.0"
    failure = gateway.work(worker, version, [()]).failures()[0]
    assert "ModuleNotFoundError" in failure[1]
    work = gateway.work(worker, with_packages(version, "gridfed_probe==9"), [()])
    assert work.failures()[0][0] == "environment"


def test_what_was_taken_away_is_made_anew(gateway, start_agent, rules):
    """By another agent of this host, say, as not used for long: no task suffers from it."""
    start_agent(gateway, 1, "--environments", rules.to_json())
    worker = gateway.worker()
    work = gateway.work(worker, with_packages(version, "gridfed_probe==1.0"), [()])
    assert work.values()[0][0] == "1.0"
    shutil.rmtree(rules.cache)
    assert gateway.work(worker, lambda: 5, [()]).values() == {0: 5}
    work = gateway.work(worker, with_packages(version, "gridfed_probe==1.0"), [()])
    assert work.failures()[0][0] == "environment"
    work = gateway.work(worker, with_packages(version, "gridfed_probe==1.0"), [()])
    assert work.values()[0][0] == "1.0"


@pytest.mark.thorough
def test_others_bring_packages_into_their_sandbox(gateway, start_agent, rules):
    need("bwrap")
    shut = replace(rules, sandbox="bubblewrap")
    start_agent(gateway, 1, "--environments", shut.to_json())

    def look():
        import gridfed_probe

        return gridfed_probe.VERSION, os.getuid(), os.path.exists(sys.prefix + "/../../../wheels")

    work = gateway.work(
        gateway.worker(), with_packages(look, "gridfed_probe==1.0"), [()], origin="paris"
    )
    assert work.values() == {0: ("1.0", shut_uid("paris"), False)}


def test_a_lock_of_uv_is_installed_as_it_is(rules, tmp_path):
    uv = packages.find_uv()
    if not uv:
        pytest.skip("uv is not installed (pip install uv)")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["gridfed_probe<2"]\n[tool.uv]\npackage = false\n'
    )
    command = [uv, "lock", "--no-index", "--find-links", rules.links, "--directory", str(project)]
    subprocess.run(command, check=True, capture_output=True)
    files = tuple((n, (project / n).read_bytes()) for n in ("pyproject.toml", "uv.lock"))
    place = packages.provide(Environment("", "uv", files, PYTHON), rules)
    told = subprocess.run(
        [place / "bin" / "python", "-c", "import gridfed_probe as g; print(g.VERSION)"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert told.stdout.strip() == "1.0"
    # Where it says that packages are from is not asked: it could be anywhere. Hashes hold.
    elsewhere = (
        b'wheels = [{ url = "http://127.0.0.1:9/gridfed_probe-1.0-py3-none-any.whl", '
        b'hash = "sha256:' + b"0" * 64 + b'" }]\n'
    )
    lock = re.sub(rb"wheels = \[.*?^\]\n", elsewhere, files[1][1], flags=re.DOTALL | re.MULTILINE)
    assert b"127.0.0.1" in lock
    forged = Environment("", "uv", (files[0], ("uv.lock", lock)), PYTHON)
    with pytest.raises(packages.PackagesUnavailable, match=r"(?s)installation failed.*[Hh]ash"):
        packages.provide(forged, rules)
