"""The rules of a site in its database: import, changes by command, planned ones, restarts."""

from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from gateway.api.past import PastJob, _bound
from gateway.api.rule_keeper import NothingToReload, RuleKeeper
from gateway.base.values import ConfigError, SettingError
from gateway.config.site import SiteConfig, check, load
from gateway.grids.kinds import Installed
from gateway.rules.history import RuleEdit, RuleKey, RuleKind
from policies import parties
from policies.access.entitlements import Work
from policies.parties import Owner
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

NOON_S = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
FILE = """\
[calendar.city]
dates = ["2026-12-25"]

[[pool]]
name = "fast"
kind = "local"
price = "0.04 USD"

[[pool.window]]
name = "night"
days = "business"
calendar = "city"
from = "22:00"
to = "06:00"
"""
NIGHT_TABLE = {"name": "night", "from": "22:00", "to": "06:00"}
PRICE = RuleKey(RuleKind.PRICE, "fast")
NIGHT = RuleKey(RuleKind.WINDOW, "fast", "night")
CITY = RuleKey(RuleKind.CALENDAR, "", "city")


class World:
    """A site with a configuration file and a disk: `start` acts as a gateway's start."""

    def __init__(self, path):
        self.path = path
        self.disk = Disk()
        self.utc_s = NOON_S
        self.said = []
        self.taken = []
        path.write_text(FILE)

    def start(self):
        """Start, after a kill or for the first time; return the keeper."""
        self.store = MemoryStore(self.disk)
        config = check(load(str(self.path), Installed()), self.utc_s)
        self.site = SimpleNamespace(
            config=config,
            runtime=SimpleNamespace(utc_s=lambda: self.utc_s, read=self.read),
            broker=SimpleNamespace(trouble=""),
            harden=self.harden,
            take_in=self.take_in,
        )
        keeper = RuleKeeper(self.site, Installed(), self.said.append)
        self.site.config, records = keeper.open(self.store.rules)
        self.store.write(records, True, lambda: None)
        return keeper

    async def read(self, call, *arguments):
        return call(*arguments)

    async def harden(self, *records):
        self.store.write(records, True, lambda: None)

    def take_in(self, config, _used_ns):
        self.taken.append(config)
        self.site.config = config

    @property
    def price(self):
        return self.site.config.pools[0].price

    @property
    def windows(self):
        return [each.name for each in self.site.config.pools[0].plan.windows]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "gateway.toml")


def change(keeper, key, content, *, is_dry=False, **more):
    propose = partial(keeper.propose, [RuleEdit(key, content)], "ada", "command", **more)
    return trio.run(partial(keeper.change, propose, is_dry=is_dry))


def reload(keeper, *, is_dry=False):
    return trio.run(partial(keeper.reload, "ada", is_dry=is_dry))


def test_the_rules_of_the_file_are_imported_once(world):
    keeper = world.start()
    assert (keeper.version, world.site.config.rules_version) == (1, 1)
    assert set(keeper.history.at(NOON_S)) == {CITY, PRICE, NIGHT}
    world.utc_s += 60
    assert world.start().history.next_number == 2


def test_a_changed_file_is_imported_at_the_next_start(world):
    world.start()
    world.path.write_text(FILE.replace("0.04", "0.05"))
    world.utc_s += 60
    keeper = world.start()
    assert world.price == "0.05 USD"
    assert [len(each.edits) for each in keeper.history.changes] == [3, 1]


def test_a_change_by_command_outlives_the_gateway_and_an_unchanged_file(world):
    change(world.start(), PRICE, "0.08 USD", reason="demand")
    assert world.price == "0.08 USD"
    world.utc_s += 60
    keeper = world.start()
    assert (world.price, keeper.version) == ("0.08 USD", 2)
    assert not reload(keeper).records
    assert world.price == "0.08 USD"
    assert "rules changed: price of fast changed by ada (version 2): demand" in world.said


def test_a_file_that_changes_a_rule_set_by_a_command_wins_and_says_so(world):
    keeper = world.start()
    change(keeper, PRICE, "0.08 USD")
    change(keeper, NIGHT, None)
    world.path.write_text(FILE.replace("0.04", "0.05"))
    dry = reload(keeper, is_dry=True)
    assert [each.key for each in dry.overridden] == [PRICE]
    assert world.price == "0.08 USD"
    reload(keeper)
    assert (world.price, world.windows) == ("0.05 USD", [])
    assert [line for line in world.said if "set by a command" in line] == [
        "rules: price of fast was set by a command, and now has the content of the file"
    ]


@pytest.mark.parametrize(
    ("key", "content", "text"),
    [
        (NIGHT, [{"name": "night", "from": "25:00"}], "from is '25:00'"),
        (NIGHT, [{"name": "night", "calender": "city"}], "unknown key 'calender'"),
        (CITY, None, "calendar 'city' not found"),
        (RuleKey(RuleKind.WINDOW, "fast", "day"), None, "no such rule"),
        (RuleKey(RuleKind.PRICE, "fast"), "4", "price"),
        (
            RuleKey(RuleKind.PRICE, "fsat"),
            "4 USD",
            "pool 'fsat' not found .did you mean 'fast'.*known pools: fast",
        ),
        (
            NIGHT,
            [NIGHT_TABLE | {"claims": [{"who": "group:quantz", "guaranteed": "50%"}]}],
            "quantz",
        ),
    ],
)
def test_a_mistake_changes_nothing(world, key, content, text):
    keeper = world.start()
    before = world.disk.tables.rule_changes.copy()
    with pytest.raises(SettingError, match=text) as caught:
        change(keeper, key, content)
    assert str(world.path) not in str(caught.value)
    assert (keeper.version, world.taken) == (1, [])
    assert world.disk.tables.rule_changes == before


def test_all_mistakes_of_a_change_are_told_at_once(world):
    keeper = world.start()
    rows = {"from": "25:00", "zone": "Mars/X", "claims": [{"who": "others", "borows": 0}]}
    edits = [
        RuleEdit(RuleKey(RuleKind.WINDOW, "fast", name), [{"name": name, **row}])
        for name, row in (("day", rows), ("noon", {"days": "mon-foo"}))
    ]
    with pytest.raises(SettingError) as caught:
        keeper.propose([*edits, RuleEdit(PRICE, "x USD")], "ann", "command")
    found = str(caught.value).split("\n")
    assert len(found) == 5
    for word in ("from", "zone", "borows", "days", "price"):
        assert any(word in each for each in found), word
    assert str(world.path) not in str(caught.value)


def test_a_planned_change_takes_effect_at_its_time_and_ends_at_its_time(world):
    keeper = world.start()
    change(keeper, PRICE, "0.08 USD", from_s=NOON_S + 100, until_s=NOON_S + 200)
    seen = []
    for at_s in (0, 99, 100, 199, 200):
        world.utc_s = NOON_S + at_s
        trio.run(keeper.look)
        seen.append((world.price, keeper.version, world.site.config.rules_version))
    usual, dear = "0.04 USD", "0.08 USD"
    assert seen == [(usual, 1, 1), (usual, 1, 1), (dear, 2, 2), (dear, 2, 2), (usual, 3, 3)]


def test_a_gateway_that_was_away_at_the_planned_time_starts_by_it(world):
    change(world.start(), PRICE, "0.08 USD", from_s=NOON_S + 100)
    world.utc_s = NOON_S + 500
    keeper = world.start()
    assert (world.price, keeper.version) == ("0.08 USD", 2)


def test_a_planned_window_is_in_the_plan_at_once_and_not_in_force(world):
    keeper = world.start()
    closed = [{"name": "inventory", "priority": 5}]
    from_s = NOON_S + 86_400
    key = RuleKey(RuleKind.WINDOW, "fast", "inventory")
    found = change(keeper, key, closed, from_s=from_s)
    assert world.windows == ["night", "inventory"]
    assert world.site.config.pools[0].plan.at(NOON_S) is None
    assert world.site.config.pools[0].plan.at(from_s).name == "inventory"
    assert found.change.windows["fast"][0].from_s == from_s
    assert keeper.version == 1


def test_a_change_that_a_planned_one_does_not_fit_is_refused(world):
    keeper = world.start()
    both = [RuleEdit(CITY, None), RuleEdit(NIGHT, None)]
    planned = partial(keeper.propose, both, "ada", "command", from_s=NOON_S + 100)
    trio.run(partial(keeper.change, planned, is_dry=False))
    late = [{"name": "late", "from": "20:00", "to": "21:00", "calendar": "city"}]
    with pytest.raises(
        SettingError, match=r"when change 2 takes effect: .*calendar 'city' not found"
    ):
        change(keeper, RuleKey(RuleKind.WINDOW, "fast", "late"), late)
    assert world.windows == ["night"]


@pytest.mark.parametrize(
    ("key", "content"), [(NIGHT, [{**NIGHT_TABLE, "to": "05:00"}]), (PRICE, "0.05 USD")]
)
def test_a_rule_that_a_planned_change_would_set_again_is_not_removed_before_that(
    world, key, content
):
    keeper = world.start()
    change(keeper, key, content, from_s=NOON_S + 3600)
    for until_s in ({}, {"until_s": NOON_S + 7200}):
        with pytest.raises(SettingError, match=r"back after its removal, by change 2, planned .*"):
            change(keeper, key, None, **until_s)
    with pytest.raises(SettingError, match="gridfed rules cancel 2"):
        change(keeper, key, None)
    change(keeper, key, None, until_s=NOON_S + 1800, is_dry=True)  # to be back before that
    change(keeper, key, None, from_s=NOON_S + 3600, is_dry=True)  # after the planned one
    trio.run(partial(keeper.change, is_dry=False), partial(keeper.propose_cancel, 2))
    change(keeper, key, None)
    assert key not in keeper.history.at(NOON_S + 10**6)


def test_only_what_is_still_to_come_can_be_cancelled(world):
    keeper = world.start()
    change(keeper, PRICE, "0.08 USD", from_s=NOON_S + 100, until_s=NOON_S + 200)
    cancel = partial(keeper.change, is_dry=False)
    for number, text in ((1, "in force already"), (3, "end of change 2"), (9, "not found")):
        with pytest.raises(SettingError, match=text):
            trio.run(cancel, partial(keeper.propose_cancel, number))
    trio.run(cancel, partial(keeper.propose_cancel, 2))
    world.utc_s = NOON_S + 150
    trio.run(keeper.look)
    keeper = world.start()
    assert (world.price, keeper.version) == ("0.04 USD", 1)
    with pytest.raises(SettingError, match="cancelled already"):
        trio.run(cancel, partial(keeper.propose_cancel, 2))


def test_a_clock_that_is_set_back_takes_no_rule_back(world):
    change(world.start(), PRICE, "0.08 USD")
    world.utc_s = NOON_S - 3_600
    keeper = world.start()
    assert (world.price, keeper.version) == ("0.08 USD", 2)
    change(keeper, PRICE, "0.09 USD")
    assert (world.price, keeper.version) == ("0.09 USD", 3)


def test_rules_of_the_past_stay_as_they_were(world):
    keeper = world.start()
    world.utc_s += 60
    change(keeper, PRICE, "0.08 USD")
    with pytest.raises(SettingError, match="the time is past"):
        change(keeper, PRICE, "0.01 USD", from_s=NOON_S)
    assert keeper.history.of(1)[PRICE] == "0.04 USD"
    assert keeper.history.of(2)[PRICE] == "0.08 USD"


@pytest.mark.parametrize(
    ("end", "name"), [("from_s", "--at"), ("until_s", "--until")], ids=["from", "until"]
)
def test_a_change_at_the_end_of_calendars_is_refused(world, end, name):
    """A window is looked at beyond it, where there are no dates any more."""
    keeper = world.start()
    with pytest.raises(SettingError, match=f"{name}: the time must be before the year 9000"):
        change(keeper, PRICE, "0.01 USD", **{end: 253_402_300_700.0})


def test_the_error_about_a_rule_that_is_not_there_names_those_that_are(world):
    keeper = world.start()
    late = RuleKey(RuleKind.WINDOW, "fast", "late")
    change(keeper, late, [{"name": "late", "from": "20:00", "to": "21:00"}])
    with pytest.raises(SettingError, match=r"no such rule exists then: there are .*late"):
        change(keeper, RuleKey(RuleKind.WINDOW, "fast", "latr"), None)


def test_a_file_and_a_database_that_do_not_fit_end_the_start_with_the_reason(world):
    keeper = world.start()
    late = RuleKey(RuleKind.WINDOW, "fast", "late")
    change(keeper, late, [{"name": "late", "from": "20:00", "to": "21:00", "calendar": "city"}])
    world.path.write_text(FILE[FILE.index("[[pool]]") :].replace('calendar = "city"\n', ""))
    with pytest.raises(ConfigError, match=r"calendar 'city' not found.*rules in the database"):
        world.start()


def test_of_two_that_are_asked_for_at_once_the_file_that_was_read_last_holds(world):
    keeper, held = world.start(), trio.Event()
    reads = iter((held.wait, trio.lowlevel.checkpoint))

    async def read(propose):
        found = propose()
        await next(reads)()
        return found

    world.site.runtime.read = read

    async def main():
        async with trio.open_nursery() as nursery:
            world.path.write_text(FILE.replace("0.04", "0.05"))
            nursery.start_soon(partial(keeper.reload, "ada", is_dry=False))
            await trio.testing.wait_all_tasks_blocked()
            world.path.write_text(FILE.replace("0.04", "0.06"))
            nursery.start_soon(partial(keeper.reload, "ada", is_dry=False))
            await trio.testing.wait_all_tasks_blocked()
            held.set()

    trio.run(main)
    assert [each.pools[0].price for each in world.taken] == ["0.05 USD", "0.06 USD"]


def test_while_the_database_cannot_be_written_nothing_is_changed(world):
    keeper = world.start()
    world.site.broker.trouble = "the disk is full"
    with pytest.raises(SettingError, match="can't be written: the disk is full"):
        change(keeper, PRICE, "0.08 USD")
    assert (world.price, keeper.version) == ("0.04 USD", 1)


def test_a_gateway_without_a_file_has_no_rules_to_change(world):
    keeper = world.start()
    world.site.config = SiteConfig()
    keeper = RuleKeeper(world.site, Installed(), world.said.append)
    assert keeper.open(world.store.rules) == (world.site.config, ())
    for propose in (partial(reload, keeper), partial(change, keeper, PRICE, "1 USD")):
        with pytest.raises(NothingToReload, match="started without a configuration file"):
            propose()


def test_the_log_says_what_became_of_each_rule(world):
    keeper = world.start()
    change(keeper, NIGHT, [{**NIGHT_TABLE, "to": "07:00"}])
    change(
        keeper,
        RuleKey(RuleKind.WINDOW, "fast", "noon"),
        [{"name": "noon", "from": "12:00", "to": "13:00"}],
    )
    change(keeper, PRICE, "0.09 USD", from_s=NOON_S + 60, reason="May")
    change(keeper, RuleKey(RuleKind.WINDOW, "fast", "noon"), None)
    assert world.said[1:] == [
        "rules changed: window 'night' of fast changed by ada (version 2)",
        "rules changed: window 'noon' of fast added by ada (version 3)",
        "rules planned: price of fast changed by ada (change 4, from 2026-11-23 12:01:00 UTC on): "
        "May",
        "rules changed: window 'noon' of fast removed by ada (version 5)",
    ]
    reload(keeper)
    assert world.said[-1] == "the configuration was reloaded by ada"


def test_a_key_that_waits_for_a_restart_is_told_by_each_reload_and_by_no_other_change(world):
    keeper = world.start()
    listen = '[site]\nlisten = ["ipc:///tmp/x/gw.sock"]\n'
    world.path.write_text(listen + FILE.replace('kind = "local"', 'kind = "local"\nregion = "x"'))
    for _ in range(2):
        assert reload(keeper).change.later == ["[site] listen", "[[pool]] fast: region"]
    assert change(keeper, PRICE, "0.08 USD").change.later == []


def test_changed_rules_about_places_are_told(world):
    keeper = world.start()
    rule = [{"who": "project:risk", "home": True}]
    assert change(keeper, RuleKey(RuleKind.RESIDENCY), rule).change.residency
    assert not change(keeper, PRICE, "0.08 USD").change.residency


def test_a_change_made_of_another_version_of_the_rules_is_refused(world):
    keeper = world.start()
    change(keeper, RuleKey(RuleKind.PRICE, "fast"), "4 USD", version=1)
    with pytest.raises(SettingError, match="made of version 1, and 2 counts"):
        change(keeper, RuleKey(RuleKind.PRICE, "fast"), "5 USD", version=1)
    change(keeper, RuleKey(RuleKind.PRICE, "fast"), "5 USD", version=2)
    assert keeper.version == 3


def test_a_rule_about_places_that_is_not_in_the_file_is_cited_by_its_change(world):
    keeper = world.start()
    change(keeper, RuleKey(RuleKind.RESIDENCY), [{"who": "all", "sites": ["oslo"]}])
    [rule] = world.site.config.residency
    assert (rule.line, rule.change, rule.place) == (0, "change 2, by ada", "change 2, by ada")
    assert keeper.config_of(2).residency[0].change == "change 2, by ada"
    job = PastJob("j", "done", "", Owner("ann", "", "risk"), 0.0, frozenset())
    assert list(_bound(job, world.site.config)) == [
        "a [[residency]] (change 2, by ada) bound it: all; sites oslo"
    ]
    world.path.write_text(FILE + '\n[[residency]]\nwho = "all"\nsites = ["oslo"]\n')
    reload(keeper)
    [rule] = world.site.config.residency
    assert rule.place == "line 16"


def test_an_entitlement_that_is_not_in_the_file_is_cited_by_its_change(world):
    keeper = world.start()
    told = change(keeper, RuleKey(RuleKind.ENTITLEMENTS), [{"deny": "user:bob"}])
    [rule] = world.site.config.entitlements.rules
    assert (rule.line, rule.change) == (0, "change 2, by ada")
    assert world.site.config.entitlements.place(rule) == "change 2, by ada"
    config = keeper.config_of(2)
    assert config.entitlements.rules[0].change == "change 2, by ada"
    change(keeper, RuleKey(RuleKind.ENTITLEMENTS), [{"allow": "user:eve"}])
    rules = world.site.config.entitlements
    denied = rules.verdict(Work(Owner("ann")), "fast", "")
    assert rules.explain(denied, Work(Owner("ann"))) == (
        "no [[entitlement]] (change 3, by ada) allows the work of ann"
    )
    [new] = told.change.to_plain()["entitlements"]["new"]
    assert (new["line"], new["change"]) == (0, "change 2, by ada")
    # The file gets the same rule: from then on its line is the better citation.
    world.path.write_text(FILE + '\n[[entitlement]]\ndeny = "user:bob"\n')
    reload(keeper)
    [rule] = world.site.config.entitlements.rules
    assert world.site.config.entitlements.place(rule) == "gateway.toml:16"


def test_a_stored_rule_whose_party_no_new_one_may_have_is_kept_and_told(world, monkeypatch):
    odd = "project:risk guaranteed=80%"
    claims = [{"who": odd}]
    with monkeypatch.context() as before:
        before.setattr(parties, "SEPARATORS", frozenset())  # as the version that took it
        change(world.start(), NIGHT, [{**NIGHT_TABLE, "claims": claims}])
    world.utc_s += 60
    keeper = world.start()
    [told] = [each for each in world.said if "is a party that nobody is" in each]
    assert odd in told
    change(keeper, PRICE, "0.08 USD")
    noon = RuleKey(RuleKind.WINDOW, "fast", "noon")
    other = {"name": "noon", "from": "12:00", "to": "13:00", "claims": [{"who": "user:a=b"}]}
    with pytest.raises(SettingError, match="is not a party: its name contains"):
        change(keeper, noon, [other])
    change(keeper, NIGHT, [NIGHT_TABLE])
    world.said.clear()
    world.start()
    assert not any("is a party that nobody is" in each for each in world.said)
