"""Symphony's parts without a cluster: settings, messages, scripts for old Pythons, plans."""

import ast
import shlex
import subprocess
import sys
import tarfile
import tomllib
from io import BytesIO
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from support.processes import unpack

from gateway.base.values import SettingError
from gateway.cli.main import cli
from gateway.config.site import load
from gateway.grids.delegating import Broken, Done, Parcel
from gateway.grids.kinds import Installed
from gateway.grids.symphony.package import SOAM, ApplicationProfile, build_package, profile
from gateway.grids.symphony.parcel_bytes import (
    pack_common,
    pack_input,
    pack_output,
    unpack_common,
    unpack_input,
    unpack_output,
)
from gateway.grids.symphony.plan import read_plan, show_windows
from gateway.grids.symphony.settings import read
from gateway.worker.slot.lone import Ran

GOOD = {
    "way": "soamapi",
    "application": "gridfed",
    "login_file": "login",
    "interpreter": "python3",
    "slots": 4,
}
REST = {"way": "rest", "application": "a", "login_file": "l", "url": "https://sym:8050", "slots": 1}


def test_good_settings():
    assert read(GOOD).slots == 4
    assert read(REST).url == "https://sym:8050"


@pytest.mark.parametrize(
    ("table", "change", "text"),
    [
        (GOOD, {"way": "ftp"}, "way is 'ftp'"),
        (GOOD, {"way": None}, "way is missing"),
        (GOOD, {"application": None}, "application is missing"),
        (GOOD, {"application": ""}, "application is empty"),
        (GOOD, {"login_file": None}, "login_file is missing"),
        (GOOD, {"interpreter": None}, "interpreter is missing"),
        (GOOD, {"slots": 0}, "slots is 0"),
        (GOOD, {"slots": 1.5}, "whole number"),
        (GOOD, {"slots": 10**6}, "slots is 1000000"),
        (GOOD, {"priority": 10_001}, "priority is 10001"),
        (GOOD, {"python": "3.12.1"}, 'for example "3.12"'),
        (GOOD, {"capacity_s": 0}, "capacity_s is 0"),
        (GOOD, {"take_up_s": -1}, "take_up_s is -1"),
        (GOOD, {"on_stop": "stay"}, "on_stop is 'stay'"),
        (GOOD, {"on_stop": "detach", "take_up_s": 0}, "requires take_up_s"),
        (GOOD, {"tag": "a\nb"}, "tag must be"),
        (GOOD, {"tag": 5}, "tag must be"),
        (GOOD, {"nope": 1}, "unknown key 'nope'"),
        (GOOD, {"slots": 0, "ego_url": "https://e", "consumer": "Risk"}, "requires consumer"),
        (REST, {"url": "http://sym:8050"}, "https://HOST:PORT"),
        (REST, {"url": "https://u:p@sym"}, "https://HOST:PORT"),
        (REST, {"url": None}, "https://HOST:PORT"),
    ],
)
def test_what_is_wrong_is_said(table, change, text):
    given_ = {**table, **change}
    with pytest.raises(SettingError) as caught:
        read({key: value for key, value in given_.items() if value is not None})
    assert text in str(caught.value)


def test_a_pool_of_this_kind_in_a_configuration(tmp_path):
    path = tmp_path / "site.toml"
    text = "\n".join(f"{key} = {value!r}" for key, value in GOOD.items())
    path.write_text(f'[[pool]]\nname = "p"\nkind = "symphony"\n[pool.symphony]\n{text}\n')
    (pool,) = load(path, Installed()).pools
    assert pool.is_delegated
    assert not pool.is_grown
    path.write_text(path.read_text() + "[pool.scale]\nmax = 5\n")
    with pytest.raises(Exception, match="are not started by gridfed"):
        load(path, Installed())


def test_what_travels_comes_back_and_nonsense_is_broken():
    parcel = Parcel("p", "job", b"d" * 32, [b"a", b"b"], 1.5, True, 1000)
    calls = unpack_input(pack_input(parcel))
    assert (calls.digest, calls.arguments, calls.timeout_s) == (b"d" * 32, [b"a", b"b"], 1.5)
    assert unpack_common(pack_common(b"d", b"body")) == (b"d", b"body")
    ran = Ran([b"v", b""], [[1, "error", "text", b""]], [[0, "said"]], 5, 4, 3)
    assert unpack_output("p", pack_output(ran)) == Done(
        "p", [b"v", b""], [[1, "error", "text", b""]], [[0, "said"]], 5, 4, 3
    )
    for nonsense in (b"", b"\xc1", b"\x90", pack_common(b"d", b"b"), b"\x97" + b"\x09" * 7):
        assert isinstance(unpack_output("p", nonsense), Broken)
    with pytest.raises(ValueError, match="fields"):
        unpack_input(pack_common(b"d", b"b"))


@given(st.binary(max_size=60))
def test_no_output_of_a_host_does_harm(data):
    assert isinstance(unpack_output("p", data), Done | Broken)


@pytest.mark.parametrize("path", sorted(SOAM.glob("*.py")), ids=lambda each: each.name)
def test_scripts_beside_soamapi_are_for_old_pythons_and_need_nothing(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 6))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.partition(".")[0])
    assert imported <= set(sys.stdlib_module_names) | {"soamapi", "soam_bytes"}


def test_the_package_is_the_same_whenever_it_is_built():
    data = build_package()
    assert data == build_package()
    with tarfile.open(fileobj=BytesIO(data)) as tar:
        names = tar.getnames()
        assert {"gridfed-service", "service.py", "soam_bytes.py"} <= set(names)
        assert "lib/gateway/grids/symphony/invoker.py" in names
        assert tar.getmember("gridfed-service").mode == 0o755
        assert {entry.mtime for entry in tar} == {0}


@pytest.mark.real
@pytest.mark.slow
def test_what_is_in_the_package_needs_nothing_else(tmp_path):
    with tarfile.open(fileobj=BytesIO(build_package())) as tar:
        unpack(tar, tmp_path)
    script = (
        "import sys, gateway.grids.symphony.invoker, gateway.worker.slot.slot, federation\n"
        "assert federation.deadline() is None\n"
        "assert gateway.__file__.startswith(sys.argv[1]), gateway.__file__\n"
        "assert 'trio' not in sys.modules and 'pynng' not in sys.modules\n"
    )
    done = subprocess.run(  # -S: without any site-packages
        [sys.executable, "-S", "-c", script, str(tmp_path)],
        env={"PYTHONPATH": str(tmp_path / "lib"), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_profile_is_xml_and_what_is_given_can_not_break_it():
    text = profile(ApplicationProfile(name='a"<b>', python="/opt/p & q"))
    tree = ElementTree.fromstring(text.encode())
    (consumer,) = [each for each in tree.iter() if each.tag.endswith("}Consumer")]
    assert consumer.get("applicationName") == 'a"<b>'
    found = {each.get("name"): each.text for each in tree.iter() if each.tag.endswith("}env")}
    assert found["GRIDFED_PYTHON"] == "/opt/p & q"


PLAN = """consumer,from,to,owned,lends,borrows
/Risk,18:00,08:00,80,,0
/Risk,08:00,18:00,20,10,
/Desk,0:00,24:00,60,,
"""


def test_a_plan_becomes_windows_that_a_gateway_reads(tmp_path):
    (tmp_path / "plan.csv").write_text(PLAN)
    given_ = ["symphony", "windows", str(tmp_path / "plan.csv"), "--zone", "Europe/London"]
    done = CliRunner().invoke(cli, [*given_, "--who", "/Desk=group:the desk"])
    assert done.exit_code == 0, done.output
    whole = '[[pool]]\nname = "p"\n' + done.output
    (tmp_path / "site.toml").write_text(whole)
    (pool,) = load(tmp_path / "site.toml", Installed()).pools
    spans = [(each.when.from_s // 3600, each.when.to_s // 3600) for each in pool.plan.windows]
    assert spans == [(8, 18), (18, 8)]
    claims = tomllib.loads(whole)["pool"][0]["window"][0]["claims"]
    assert claims == [
        {"who": "project:risk", "guaranteed": 20, "lends": 10},
        {"who": "group:the desk", "guaranteed": 60},
    ]


def test_a_plan_that_never_changes_is_one_window():
    found = read_plan("consumer,from,to,owned,lends,borrows\n/A,00:00,24:00,5,,\n")
    assert list(found) == [(0, 24)]
    shown = tomllib.loads("[[pool]]\n" + show_windows(found, {}, zone="UTC", grace_s=30))
    assert "from" not in shown["pool"][0]["window"][0]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("", "the first line"),
        ("/A,00:30,24:00,5,,", "line 2: from is '00:30'"),
        ("/A,00:00,12:00,5,,", "/A has no slots from 12:00"),
        ("/A,00:00,24:00,5,,\n/A,08:00,09:00,5,,", "line 3: /A has 08:00 twice"),
        ("\n/A,00:30,24:00,5,,", "line 3: from is '00:30'"),
        ("/A,00:00,24:00,1,000,,", "line 2: more than 6 fields"),
        ("A,00:00,24:00,5,,", "must be a path"),
        ("/A,00:00,24:00,many,,", "owned is 'many'"),
        ("/A,00:00,24:00,,,", "owned is missing"),
        ("/A,24:00,01:00,1,,", "from is 24:00"),
        (f"/A,00:00,24:00,{'9' * 5000},,", "owned is '9999"),
        (f"/A,00:00,24:00,{'9' * 200_000},,", "line 2: field larger than"),
    ],
    ids=lambda each: each[:30],
)
def test_a_plan_that_is_wrong_is_refused_with_its_line(lines, text):
    with pytest.raises(SettingError) as caught:
        read_plan(f"consumer,from,to,owned,lends,borrows\n{lines}\n")
    assert text in str(caught.value)


@pytest.mark.parametrize("columns", ["lend,borrows", "owned,lends", "lends,"])
def test_a_column_that_nobody_knows_is_not_taken_for_all(columns):
    with pytest.raises(SettingError, match="the first line has"):
        read_plan(f"consumer,from,to,owned,{columns}\n/A,00:00,24:00,5,1,2\n")


@pytest.mark.parametrize(
    ("consumers", "who", "text"),
    [
        (("/A/Risk", "/B/Risk"), {}, "/A/Risk and /B/Risk are both project:risk"),
        (("/A", "/B"), {"/A": "project:b"}, "/A and /B are both project:b"),
        (("/A/",), {}, "/A/: 'project:' is not a party"),
        (("/A",), {"/Desk": "group:desk"}, "names '/Desk', which is not in the plan"),
    ],
)
def test_consumers_are_parties_one_each(consumers, who, text):
    lines = "".join(f"{each},00:00,24:00,5,,\n" for each in consumers)
    found = read_plan(f"consumer,from,to,owned,lends,borrows\n{lines}")
    with pytest.raises(SettingError) as caught:
        show_windows(found, who, zone="UTC", grace_s=30)
    assert text in str(caught.value)


def test_a_plan_that_is_too_large_is_not_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.grids.symphony.command.PLAN_CHARS_MAX", len(PLAN) - 2)
    (tmp_path / "plan.csv").write_text(PLAN)
    done = CliRunner().invoke(cli, ["symphony", "windows", str(tmp_path / "plan.csv")])
    assert done.exit_code == 2
    assert "it is longer than" in done.output


def test_what_is_printed_for_a_shell_is_quoted(tmp_path):
    out = tmp_path / "a b.tar.gz"
    done = CliRunner().invoke(cli, ["symphony", "package", str(out), "--consumer", "/A;b"])
    assert done.exit_code == 0, done.output
    first, second = (shlex.split(line) for line in done.output.splitlines())
    assert first == ["soamdeploy", "add", "gridfed", "-p", str(out), "-c", "/A;b"]
    assert second == ["soamreg", str(tmp_path / "a b.xml")]
