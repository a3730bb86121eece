"""Rules that are changed while a gateway runs: by command, at a planned time, and under kills."""

import random
import threading
import tomllib
from datetime import UTC, datetime

import pytest
from support.answers import answer
from support.command import quick
from support.processes import wait_until

from federation import Client
from federation.errors import GridError

pytestmark = pytest.mark.real

CONFIG = """\
# the desk's grid
[site]
name = "london"

[[pool]]
name = "local"
kind = "local"
slots = 1
price = "0.04 USD"  # agreed in May

[[pool.window]]
name = "night"
from = "22:00"
to = "06:00"
"""
KILLS = 5


@pytest.fixture
def site(make_site):
    return make_site(0, config=CONFIG)


@pytest.fixture
def gridfed(site):
    """Run a command against the site; return its output, as data with --json."""

    def command(*arguments, code=0):
        text = quick(*arguments, code=code, GRIDFED_GATEWAY=site.address)
        return answer(text) if "--json" in arguments else text

    return command


def windows(site, *arguments):
    """The windows of a pool by `gridfed windows`, which needs no gateway."""
    config = site.folder / "site.toml"
    text = f'state = "{site.state}"\n'
    if text not in config.read_text():
        config.write_text(config.read_text().replace("[site]\n", f"[site]\n{text}"))
    [found] = answer(quick("windows", "--config", str(config), "--json", *arguments))["rows"]
    return [each["window"] for each in found["holds"]]


def test_a_window_by_command_counts_is_traced_and_written_back(site, gridfed):
    added = gridfed(
        *("window", "add", "local", "noon", "--from", "12:00", "--to", "13:00"),
        *("--claim", "others, borrows=0", "--reason", "valuation", "--json"),
    )
    assert (added["change"], added["version"], added["applied"]) == (2, 2, True)
    gridfed("window", "change", "local", "noon", "--to", "14:00")
    text = gridfed("window", "history", "local", "noon")
    assert "valuation" in text
    assert "from 12:00, to 13:00" in text
    refused = gridfed("window", "add", "local", "noon", code=1)
    assert "has a window 'noon' at that time" in refused
    assert "from is '25:00'" in gridfed("window", "add", "local", "x", "--from", "25:00", code=1)

    config = site.folder / "site.toml"
    gridfed("rules", "export", "--into", str(config))
    written = config.read_text()
    assert "# the desk's grid" in written
    assert '"0.04 USD"  # agreed in May' in written
    night, noon = tomllib.loads(written)["pool"][0]["window"]
    assert night == {"name": "night", "from": "22:00", "to": "06:00"}
    assert noon == {
        "name": "noon",
        "from": "12:00",
        "to": "14:00",
        "claims": [{"who": "others", "borrows": 0}],
    }
    assert tomllib.loads(gridfed("rules", "export"))["pool"][0]["window"] == [night, noon]
    assert "no windows change" in gridfed("reload", "--dry-run")


def test_a_past_and_a_coming_moment_are_shown_without_a_gateway(site, gridfed):
    before_s = gridfed("rules", "list", "--json")["at_s"]
    gridfed("window", "end", "local", "night")
    gridfed("window", "add", "local", "all day", "--at", "2027-01-04")
    site.kill()
    before = datetime.fromtimestamp(before_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    assert windows(site, "--next", "2d") == [None]
    config = str(site.folder / "site.toml")
    was, now = (quick("windows", "--config", config, *at) for at in (("--at", before), ()))
    assert ("night (priority 0)" in was, "night (priority 0)" in now) == (True, False)
    assert windows(site, "--at", "2027-01-03T23:00") == [None]
    assert windows(site, "--at", "2027-01-04") == ["all day"]
    assert windows(site, "--at", "2026-12-01T23:00", "--file-only") == ["night"]


def test_a_gateway_tells_its_windows_where_no_configuration_is(site, gridfed):
    gridfed("window", "add", "local", "noon", "--from", "12:00", "--to", "13:00")
    more = ("--at", "2027-01-04", "--until", "2027-01-06")
    gridfed("window", "add", "local", "all day", "--priority", "5", *more)
    for span in (("--at", "2027-01-03T00:00", "--next", "5d"), ("--at", "2027-01-05T12:30")):
        [asked] = gridfed("windows", *span, "--json")["rows"]
        names = [each["window"] for each in asked["holds"]]
        assert names == windows(site, *span)
        assert "all day" in names
    [there] = answer(quick("windows", "--gateway", site.address, "--json"))["rows"]
    assert there["pool"] == "local"
    text = gridfed("windows")
    assert text.startswith("by version 2 of the rules")
    config = str(site.folder / "site.toml")
    listed = [each.splitlines()[1:-1] for each in (text, quick("windows", "--config", config))]
    assert listed[0] == listed[1], "planned windows are in the plan, too"


def test_usage_names_the_version_under_which_it_ran(site, gridfed):
    config = site.folder / "rules.toml"
    config.write_text('[[pool]]\nname = "local"\nprice = "0.08 USD"\n')
    jobs = []
    for _ in range(2):
        with Client(site.address) as client:
            assert client.submit(abs, -1).result(200) == 1
        wait_until(lambda: len(gridfed("jobs", "--json")) > len(jobs), "the job is listed")
        jobs.append(gridfed("jobs", "--json")[0]["id"])
        gridfed("rules", "apply", str(config))
    rules = [gridfed("job", job, "--json")["rules"] for job in jobs]
    assert [[each["version"] for each in found] for found in rules] == [[1], [2]]
    [was] = gridfed("rules", "list", "--version", "1", "--kind", "price", "--json")["rows"]
    assert was["content"] == "0.04 USD"


def test_groups_are_taken_from_the_host_and_again_only_when_they_differ(site, gridfed):
    text = gridfed("rules", "take-groups", "staff=root", "--reason", "directory")
    assert "groups of root: none → staff" in text
    assert "change 2 is in force" in text
    assert "nothing was changed" in gridfed("rules", "take-groups", "staff=root")
    [rule] = gridfed("rules", "list", "--kind", "groups", "--json")["rows"]
    assert "root" in rule["content"]["staff"]
    assert "group 'none-such' not found" in gridfed("rules", "take-groups", "none-such", code=1)
    [last, _] = gridfed("rules", "history", "--json")
    assert (last["source"], last["reason"]) == ("host groups", "directory")


def test_no_kill_leaves_half_a_change_or_loses_one_that_was_answered(site):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    answered = []
    for _ in range(KILLS):
        already, stop = len(answered), threading.Event()
        thread = threading.Thread(target=change, args=(site, answered, stop))
        thread.start()
        wanted = already + chance.randrange(1, 8)
        wait_until(lambda wanted=wanted: len(answered) >= wanted, "some changes are made")
        site.kill()
        stop.set()
        site.start()
        thread.join(200)
        assert not thread.is_alive()
        with Client(site.address) as client:
            history = client.ask("rule_history", limit=1000)
            found = client.ask("rules")
        made = [each for each in history if each["source"] == "command"]
        assert {each["change"] for each in made} >= set(answered)
        for each in made:
            prices = [edit["after"] for edit in each["edits"] if edit["kind"] == "price"]
            factors = [edit["after"] for edit in each["edits"] if edit["kind"] == "window"]
            assert prices == [f"0.{each['reason']} USD"]
            assert factors == [window(int(each["reason"]))]
        latest = max(made, key=lambda each: each["change"])
        assert found["version"] == latest["change"]
        contents = {each["kind"]: each["content"] for each in found["rules"]}
        assert contents["price"] == f"0.{latest['reason']} USD"
        assert contents["window"] == window(int(latest["reason"]))


def window(number):
    return [{"name": "night", "from": "22:00", "to": "06:00", "grace_s": number}]


def change(site, answered, stop):
    """Change two rules at once, over and over, until the gateway is killed."""
    try:
        with Client(site.address) as client:
            while not stop.is_set():
                number = 1 + len(answered)
                edits = [
                    {"kind": "price", "pool": "local", "content": f"0.{number} USD"},
                    {
                        "kind": "window",
                        "pool": "local",
                        "name": "night",
                        "content": window(number),
                    },
                ]
                made = client.ask("change_rules", edits=edits, reason=str(number))
                answered.append(made["change"])
    except GridError:
        return
