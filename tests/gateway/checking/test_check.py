"""Files, credentials and grids that a configuration names; and the places where checks are made."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from click.testing import CliRunner

from federation.clocks import UtcS
from federation.signed.tokens import UserToken, write_token
from gateway.base.values import ConfigError, SettingError
from gateway.checking import grids
from gateway.checking.expiry import check_windows
from gateway.checking.findings import FindingList
from gateway.checking.whole import check_reload, check_start, examine
from gateway.cli.main import cli
from gateway.config.site import check, load
from gateway.grids.contract import FailureClass, GridFault, GridKind
from gateway.grids.kinds import Installed
from gateway.trust.keys import load_keys
from policies.access.windows import Window, WindowPlan
from policies.calendar.hours import Hours
from policies.calendar.validity import During

DAY_S = 86_400.0


def found(place, *, code=0):
    """The only finding: its code, subject and text."""
    [each] = place.check("--offline", code=code)["findings"]
    return each["code"], each["subject"], each["text"]


def test_a_certificate_without_its_key_is_an_error(place):
    place.certify(key=False)
    code, subject, text = found(place, code=1)
    assert (code, subject) == ("tls-key-missing", "[site] tls_certificate_file")
    assert "has a certificate but no private key: put both into this one file" in text


def test_the_key_of_another_certificate_is_an_error(place):
    place.certify()
    theirs = (place.folder / "gw.pem").read_text()
    place.certify()
    ours = (place.folder / "gw.pem").read_text()
    mark = "-----BEGIN PRIVATE KEY"
    mixed = theirs[: theirs.index(mark)] + ours[ours.index(mark) :]
    (place.folder / "gw.pem").write_text(mixed)
    assert "is not that of the certificate in it" in found(place, code=1)[2]


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nx\n"])
def test_what_is_no_certificate_is_an_error(place, text):
    (place.folder / "gw.pem").write_text(text)
    assert "has no certificate in PEM form" in found(place, code=1)[2]


@pytest.mark.parametrize("folder", ["/proc/x", "/sys/x/y"])
def test_a_state_folder_that_the_kernel_refuses_is_an_error(place, folder):
    place.change('state = "{folder}/state"', f'state = "{folder}"')
    code, subject, text = found(place, code=1)
    assert (code, subject) == ("folder", "[site] state")
    assert text.startswith(f"{folder} can't be made in /")
    assert text.endswith("name a folder on a disk")
    config = check(load(str(place.path), Installed()), time.time())
    with pytest.raises(ConfigError, match=rf"gateway.toml: line [0-9]+: \[site\] state: {folder}"):
        check_start(config, time.time())


@pytest.mark.parametrize(("days", "text"), [(7.5, "expires on "), (-1.0, "has expired on ")])
def test_a_certificate_that_expires_is_a_warning(place, days, text):
    place.certify(valid_days=days)
    code, _, said = found(place)
    assert code == "certificate-expires"
    assert text in said


def test_files_that_other_users_can_read_are_a_warning(place):
    for name in ("secret", "gw.pem", "token"):
        (place.folder / name).chmod(0o644)
    told = place.check("--offline")
    assert {each["code"] for each in told["findings"]} == {"file-exposed"}
    assert told["warnings"] == 3


def give_token(place, *, lasts_s, scopes, issued_s=None):
    now_s = time.time()
    ring = load_keys(place.folder / "keys")
    token = UserToken(
        federation=place.federation,
        issuer="london",
        id="0" * 16,
        user="pilots",
        projects=None,
        scopes=frozenset(scopes),
        sites=frozenset({"london"}),
        issued_s=now_s - 90 * DAY_S if issued_s is None else issued_s,
        expires_s=now_s + lasts_s,
    )
    (place.folder / "token").write_text(write_token(token, ring.current.key))


@pytest.mark.parametrize(
    ("lasts_s", "scopes", "code", "text"),
    [
        (-1.0, {"work"}, "token", "has expired; make another with `gridfed token --user "),
        (60 * DAY_S, {"submit"}, "token", "the token allows submit, and not work in this pool"),
        (60 * DAY_S, {"work:hpc"}, "token", "allows work:hpc, and not work in this pool"),
        (5.5 * DAY_S, {"work"}, "token-expires", "in 5 days: make another with"),
    ],
)
def test_the_token_of_pilots_is_checked(place, lasts_s, scopes, code, text):
    give_token(place, lasts_s=lasts_s, scopes=scopes)
    told = found(place, code=0 if code == "token-expires" else 1)
    assert told[0] == code
    assert text in told[2]


def test_a_good_token_of_pilots_is_no_finding(place):
    give_token(place, lasts_s=60 * DAY_S, scopes={"work:cloud"})
    assert place.check("--offline")["findings"] == []


def test_keys_that_are_gone_are_an_error(place):
    (place.folder / "keys" / "current.pem").unlink()
    code, subject, _ = found(place, code=1)
    assert (code, subject) == ("keys", "[federation]")


def test_a_name_that_is_not_that_of_the_keys_is_an_error(place):
    place.change('name = "london"', 'name = "londinium"')
    code, subject, text = found(place, code=1)
    assert (code, subject) == ("site-name", "[site] name")
    assert "are of site 'london'" in text


def test_folders_that_can_not_be_made_are_an_error(place):
    place.change('state = "{folder}/state"', 'state = "{folder}/secret/state"')
    place.change("[limits]", '[log]\nfile = "{folder}/none/gw.log"\n[limits]')
    told = place.check("--offline", code=1)
    assert [each["subject"] for each in told["findings"]] == ["[site] state", "[log] file"]


# --- grids ---------------------------------------------------------------------------------------


class NoSuchPartition:
    """A grid that would take no order."""

    def __init__(self, fault):
        self._fault = fault

    async def check(self):
        if self._fault is None:
            return "a grid"
        if self._fault == "hangs":
            await trio.sleep_forever()
        raise self._fault

    limits = capacity = pilots = start = stop = None


@pytest.mark.parametrize(
    ("fault", "level", "code"),
    [
        (GridFault(FailureClass.NEVER, "partition 'hpcc' does not exist"), "error", "grid"),
        (GridFault(FailureClass.ELSEWHERE, "partition hpc is not UP"), "warning", "grid-now"),
        (GridFault(FailureClass.AGAIN, "slurmctld does not answer"), "warning", "grid-now"),
        ("hangs", "error", "grid-silent"),
        (None, "", ""),
    ],
)
def test_the_grids_are_asked(place, monkeypatch, fault, level, code):
    kind = GridKind("processes", read=dict, open=lambda _settings, _launch: None)
    monkeypatch.setattr(grids, "find_kind", lambda _name: kind)
    monkeypatch.setattr(grids, "open_grid", lambda *_: NoSuchPartition(fault))
    config = check(load(str(place.path), Installed()), time.time())
    findings = FindingList(config.source, config.places)
    told = trio.run(grids.ask_grids, config, findings, 0.05 if fault == "hangs" else 60.0)
    if not level:
        assert (told, findings.found) == ({"cloud": "a grid"}, [])
        return
    [each] = findings
    assert (each.level, each.code) == (level, code)
    assert each.subject == "[[pool]] cloud, [pool.processes]"
    assert each.line == place.line_of('[[pool]]\nname = "cloud"')


def test_a_real_grid_is_asked_and_nothing_is_left(place):
    told = place.check()
    assert told["findings"] == []
    assert list(told["grids"]) == ["cloud"]
    assert not (place.folder / "state").exists()


# --- the places where checks are made ------------------------------------------------------------


def test_people_read_sentences(place):
    place.change("{folder}/token", "{folder}/gone")
    done = CliRunner().invoke(cli, ["check", str(place.path), "--offline"])
    line = place.line_of("token_file")
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        f"error: {place.path}: line {line}: [[pool]] cloud, [pool.scale] token_file: "
        f"{place.folder}/gone: No such file or directory",
        f"{place.path}: 1 error, 0 warnings",
    ]


def test_without_a_file_the_usual_one_is_checked(place, monkeypatch):
    monkeypatch.setenv("GRIDFED_CONFIG_DIR", str(place.folder))
    done = CliRunner().invoke(cli, ["check", "--offline"])
    assert done.output == f"{place.path}: no problems found\n"


def configured(place):
    return check(load(str(place.path), Installed()), time.time())


def test_a_start_is_stopped_by_what_it_could_not_work_with(place):
    place.change('who = "group:quants"', 'who = "group:gone"')
    config = configured(place)
    assert [each.code for each in check_start(config, time.time()).errors] == ["unknown-group"]
    place.certify(key=False)
    with pytest.raises(ConfigError, match="no private key"):
        check_start(config, time.time())


def test_a_start_says_what_is_wrong_before_it_listens(place):
    place.change("{folder}/gw.pem", "{folder}/gone.pem")
    done = CliRunner().invoke(cli, ["gateway", "--config", str(place.path)])
    assert done.exit_code == 2
    assert f"line {place.line_of('gone.pem')}: [site] tls_certificate_file" in done.output


def test_a_reload_is_refused_for_errors_and_told_of_warnings(place):
    before = configured(place)
    place.change('amount = "1000 GBP"', 'amount = "1000 JPY"')
    [warning] = check_reload(before, configured(place), time.time())
    assert f"line {place.line_of('JPY')}: [[budget]] risk: amount is in JPY" in warning
    place.change('who = "group:quants"', 'who = "group:gone"')
    with pytest.raises(SettingError, match="group 'gone' not found"):
        check_reload(before, configured(place), time.time())


def test_a_reload_tells_of_a_secret_that_was_removed(place, monkeypatch):
    before = configured(place)
    place.change('secret_file = "{folder}/secret"\n', "")
    monkeypatch.setenv("GRIDFED_SECRET", "s")
    [warning] = check_reload(before, configured(place), time.time())
    assert "secret_file: it was removed: after the next start" in warning


def test_nothing_is_changed_by_a_check(place):
    def seen():
        return {each: each.stat().st_mtime_ns for each in Path(place.folder).rglob("*")}

    before = seen()
    examine(configured(place), time.time())
    assert seen() == before


def test_findings_have_the_lines_of_their_keys(place):
    place.change("{folder}/keys", "{folder}/none")
    place.change('[[pool]]\nname = "hpc"', '[[pool]]\nenvironments.links = "/none"\nname = "hpc"')
    found = {each["code"]: each["line"] for each in place.check("--offline", code=1)["findings"]}
    assert found == {
        "keys": place.line_of("folder ="),
        "folder": place.line_of("environments.links"),
    }


@pytest.mark.parametrize(
    ("until_s", "text"),
    [
        (2.5 * DAY_S, "expires on 1970-01-03, in 1 day: extend it if it is still needed"),
        (1.0 * DAY_S, "has expired on 1970-01-02: remove it"),
    ],
)
def test_a_window_that_ends_is_told_in_a_sentence(until_s, text):
    window = Window("lunch", During(Hours(12 * 3600, 13 * 3600), until_s=UtcS(until_s)))
    pool = SimpleNamespace(name="risk", plan=WindowPlan((window,)))
    findings = FindingList()
    check_windows(SimpleNamespace(pools=[pool]), findings, UtcS(1.2 * DAY_S))
    [found] = findings
    assert found.text == f"valid_until: the window {text}"
