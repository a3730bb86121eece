"""docs/write_a_grid.md: its grid keeps the contract, and is installed as a third party's is."""

import contextlib
import importlib
import re
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from gateway.base.values import SettingError
from gateway.grids import checks
from gateway.grids.contract import Capacity, Launch, Limits, Order, Shape, Sighting
from gateway.grids.kinds import find_kind

PAGE = Path(__file__).parents[3] / "docs" / "write_a_grid.md"
BLOCKS = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)\n```", PAGE.read_text(), re.DOTALL))
QUICK = {
    checks.check_started_once,
    checks.check_stop_at_once,
    checks.check_too_large,
    checks.check_denied,
}
MODULES = ("acme_hosts", "test_acme_hosts")


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The page's package, as pip would install it."""
    folder = tmp_path_factory.mktemp("site-packages")
    project = tomllib.loads(BLOCKS["pyproject.toml"])["project"]
    tool = tomllib.loads(BLOCKS["pyproject.toml"])["tool"]["setuptools"]
    assert tool["py-modules"] == [*MODULES[:1]]
    for module in MODULES:
        (folder / f"{module}.py").write_text(BLOCKS[f"{module}.py"])
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(about)
    points = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    sys.path.append(str(folder))
    importlib.invalidate_caches()
    yield
    sys.path.remove(str(folder))
    for module in MODULES:
        sys.modules.pop(module, None)


def test_its_kind_is_found_and_reads_the_page_s_configuration():
    [pool] = tomllib.loads(BLOCKS["gateway.toml"])["pool"]
    kind = find_kind(pool["kind"])
    config = kind.read(pool["hosts"])
    assert (config.hosts, config.slots) == (["calc1", "calc2"], 4)
    assert config.reach[0] == "ssh"
    for wrong in ({}, {"hosts": []}, {"hosts": [1]}, {"hosts": ["a"], "slots": 0}, {"host": "a"}):
        with pytest.raises(SettingError):
            kind.read(wrong)


def test_the_page_tells_all_that_is_passed_to_and_fro():
    told, kind = {}, ""
    for line in PAGE.read_text().splitlines():
        row = re.match(r"\| (?:`([A-Z]\w+)`)? ?\| ((?:`\w+`(?:, )?)+) \| ", line)
        if row:
            kind = row[1] or kind
            told.setdefault(kind, []).extend(re.findall(r"\w+", row[2]))
    for each in (Order, Shape, Sighting, Capacity, Limits, Launch):
        assert told[each.__name__] == [field.name for field in fields(each)]


@pytest.mark.parametrize("name", ["left", "take", "full", "denied", "down"])
async def test_the_page_tells_why_something_is_not_checked(name):
    bench = checks.Bench()
    given = () if name in ("full", "down") else (None,)
    with pytest.raises(checks.NotChecked) as caught:
        await getattr(bench, name)(*given)
    row = rf"^\| `{name}` \| .* \| `{re.escape(str(caught.value))}` \|$"
    assert re.search(row, PAGE.read_text(), re.MULTILINE)


@pytest.mark.real
@pytest.mark.parametrize(
    "check",
    [
        pytest.param(
            each,
            id=checks.name_of(each),
            marks=pytest.mark.slow if each in QUICK else pytest.mark.thorough,
        )
        for each in checks.CHECKS
    ],
)
async def test_its_grid_keeps_the_contract(check, tmp_path):
    bench = importlib.import_module("test_acme_hosts").HostsBench(tmp_path)
    try:
        await checks.run(check, bench)
    except checks.NotChecked as reason:
        pytest.skip(str(reason))


@pytest.mark.real
async def test_all_at_once_says_what_was_not_checked(tmp_path):
    @contextlib.asynccontextmanager
    async def make():
        yield importlib.import_module("test_acme_hosts").HostsBench(tmp_path)

    some = (checks.check_too_large, checks.check_no_capacity)
    assert await checks.check_grid(make, some) == {"no_capacity": "the bench can't refuse capacity"}
