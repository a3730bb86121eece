"""A federation as its operators make it: init, invite, join, approve, by the command line."""

import tomllib

import pytest
from support.answers import answer
from support.command import quick, run
from support.processes import Process, wait_until

from gateway.base.values import ConfigError
from gateway.cli.operate.found import TEMPLATE
from gateway.cli.operate.trust.ordering import parse_span
from gateway.cli.operate.trust.rights import parse_rule
from gateway.config.federation import FederationConfig
from gateway.config.site import check, load
from gateway.trust.permissions import Verb, forbid, from_plain, permit

pytestmark = [pytest.mark.slow, pytest.mark.real]

QUICK = 'rotation_spread_s = 0.5\nrotation_overlap_s = 0.5\nfollow_expulsions = "any"\n'


class Site:
    """A site's folder, made by `gridfed init`, and its gateway."""

    def __init__(self, folder, name):
        self.name, self.folder = name, folder / name
        where = ["--host", "127.0.0.1", "--port", "0", "--config-dir", str(self.folder)]
        self.made = answer(quick("init", "--site", name, *where, "--json"))
        self.fingerprint = self.made["fingerprint"]
        self.config = self.folder / "gateway.toml"
        text = self.config.read_text()
        self.config.write_text(text.replace("[federation]\n", f"[federation]\n{QUICK}"))
        self.gateway = None

    def start(self):
        self.gateway = Process(
            ["gateway", "--config", str(self.config), "--json"], self.folder, "gateway"
        )
        self.ready = self.gateway.wait_ready()

    def stop(self):
        if self.gateway is not None:
            self.gateway.stop()
            self.gateway = None

    def run(self, *arguments, code=0):
        return quick(*arguments, "--config-dir", str(self.folder), code=code)

    def json(self, *arguments):
        return answer(self.run(*arguments, "--json"))

    def known(self):
        return {each["site"]: each for each in self.json("known")["rows"]}

    def level(self, other):
        return self.known().get(other.name, {}).get("level")

    def said(self, text):
        return text in self.gateway.text()


def acquaint(one, other):
    """By the words of the command line, as two operators do."""
    invitation = one.run("invite").splitlines()[0]
    assert "our level there is pending" in other.run("join", invitation)
    approve(one, other)


def approve(one, other):
    for here, there in ((one, other), (other, one)):
        assert "is approved" in here.run("approve", there.name, there.fingerprint)


def linked(one, other):
    for here, there in ((one, other), (other, one)):
        wait_until(lambda: here.said(f"link to {there.name} is up"), "a link")  # noqa: B023


@pytest.fixture
def sites(tmp_path):
    made = [Site(tmp_path, name) for name in ("london", "paris", "lyon")]
    yield made
    for site in made:
        site.stop()


@pytest.fixture
def alone(tmp_path):
    """A site whose gateway does not run."""
    return Site(tmp_path, "london")


@pytest.mark.thorough
def test_two_machines_become_a_federation_by_the_real_command(tmp_path):
    where = {name: ["--config-dir", str(tmp_path / name)] for name in ("london", "paris")}
    prints, gateways = {}, []
    try:
        for name in where:
            there = ["--host", "127.0.0.1", "--port", "0", *where[name]]
            prints[name] = answer(run("init", "--site", name, *there, "--json"))["fingerprint"]
            config = str(tmp_path / name / "gateway.toml")
            gateways.append(
                Process(["gateway", "--config", config, "--json"], tmp_path / name, "gateway")
            )
        for gateway in gateways:
            assert gateway.wait_ready()["peer_addresses"]
        run("join", run("invite", *where["london"]).strip(), *where["paris"])
        run("approve", "paris", prints["paris"], *where["london"])
        run("approve", "london", prints["london"].lower(), *where["paris"])
        for gateway, other in zip(gateways, ("paris", "london"), strict=True):
            wait_until(lambda: f"link to {other} is up" in gateway.text(), "a link")  # noqa: B023
            wait_until(lambda: f"site {other} connected" in gateway.text(), "a session")  # noqa: B023
    finally:
        codes = [gateway.stop() for gateway in gateways]
    assert codes == [0, 0]


def test_three_sites_meet_one_is_expelled_one_leaves(sites):
    london, paris, lyon = sites
    for site in sites:
        site.start()
    acquaint(london, paris)
    acquaint(paris, lyon)
    wait_until(lambda: london.level(lyon) == lyon.level(london) == "known", "the gossip of cards")
    approve(london, lyon)
    linked(london, lyon)
    for site in sites:  # each was in a federation of its own before
        assert not site.said("protocol error"), site.gateway.text()
    assert "is expelled" in london.run("expel", "lyon", "--yes", "--reason", "too loud")
    wait_until(lambda: paris.level(lyon) == "expelled", "the gossip of the expulsion")
    assert london.said("link to lyon is down") or london.said("site lyon disconnected")
    assert "expelled: end the expulsion" in paris.run("approve", "lyon", lyon.fingerprint, code=1)
    assert "is known" in london.run("keep", "lyon")
    wait_until(lambda: paris.level(lyon) == "approved", "the gossip of that it is kept")
    assert "has left" in paris.run("leave", "--yes")
    wait_until(lambda: london.level(paris) == "left", "the farewell")
    assert "left already" in paris.run("leave", "--yes", code=1)


def test_keys_rotate_under_a_running_gateway(sites):
    london, paris, _ = sites
    london.start()
    paris.start()
    acquaint(london, paris)
    linked(london, paris)
    london.run("rotate")
    wait_until(lambda: london.said("have replaced the old ones"), "the end of the rotation")
    new = london.known()["london"]["fingerprint"]
    assert new != london.fingerprint
    wait_until(lambda: paris.known()["london"]["fingerprint"] == new, "the new card")
    assert paris.level(london) == "approved"


@pytest.mark.thorough
def test_what_a_command_decides_while_the_gateway_runs_is_there_after_it_and_before(sites):
    london, paris, _ = sites
    london.start()
    paris.start()
    acquaint(london, paris)
    london.run("trust", "paris", "--may-send", "slots=100")
    london.stop()
    london.run("trust", "paris", "--may-run", "all")
    london.start()
    rules = london.json("trust", "paris")["rules"]
    assert {(each["verb"], each.get("slots_max")) for each in rules} == {
        ("send", 100),
        ("run", None),
    }


def test_orders_are_for_who_reaches_the_gateways_own_socket(sites):
    from federation import Client
    from federation.errors import GridError

    london = sites[0]
    text = london.config.read_text()
    london.config.write_text(text.replace("listen = [", 'listen = ["tcp://127.0.0.1:0", ', 1))
    london.start()
    tcp = next(each for each in london.ready["addresses"] if each.startswith("tcp://"))
    with Client(tcp) as client, pytest.raises(GridError, match="own host"):
        client.ask("expel", site="paris")
    assert london.known()


def test_a_site_without_keys_is_single(tmp_path):
    (tmp_path / "site.toml").write_text(
        f'[site]\nlisten = ["ipc://{tmp_path}/gw.sock"]\nstate = "{tmp_path}"\n[federation]\n'
    )
    gateway = Process(
        ["gateway", "--config", str(tmp_path / "site.toml"), "--json"], tmp_path, "gateway"
    )
    try:
        assert "peer_addresses" not in gateway.wait_ready()
        assert "is in no federation" in gateway.text()
    finally:
        assert gateway.stop() == 0


def test_a_configuration_for_another_site_than_its_keys_is_told(alone):
    alone.config.write_text(alone.config.read_text().replace('"london"', '"paris"', 1))
    gateway = Process(["gateway", "--config", str(alone.config)], alone.folder, "gateway")
    assert gateway.process.wait(300) == 2
    gateway.stop()
    assert "are of site 'london', and [site] name is 'paris'" in gateway.text()


# --- without a gateway ---------------------------------------------------------------------------


def test_init_overwrites_nothing(alone):
    before = alone.config.read_text()
    assert "exists already" in alone.run("init", "--site", "london", code=1)
    assert alone.config.read_text() == before


@pytest.mark.parametrize("site", ["London", "lo", "a b c", "x" * 41])
def test_a_bad_name_is_told(tmp_path, site):
    assert "must match" in quick("init", "--site", site, "--config-dir", str(tmp_path), code=2)
    assert list(tmp_path.iterdir()) == []


def test_keys_and_trust_are_for_their_owner_alone(alone):
    folder = alone.folder / "federation"
    assert folder.stat().st_mode & 0o077 == 0
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_configuration_that_is_written_says_what_holds_by_default():
    section = TEMPLATE.partition("\n[federation]\n")[2].partition("\n\n# [log]")[0]
    lines = [line for line in section.splitlines() if " = " in line]
    said = tomllib.loads("\n".join(line[2:] for line in lines if line.startswith("# ")))
    said = {key: tuple(value) if type(value) is list else value for key, value in said.items()}
    assert {key: getattr(FederationConfig(), key) for key in said} == said != {}
    known = {line.removeprefix("# ").partition(" = ")[0] for line in lines}
    made = {"advertise", "join_advertise", "bulk_advertise"}
    fields = set(FederationConfig.__dataclass_fields__) - made
    assert fields <= known


def test_an_invitation_needs_an_address_that_others_can_dial(alone):
    assert "join_listen" in alone.run("invite", code=1)


def test_an_invitation_that_was_not_copied_whole_is_told(alone):
    assert "must begin with gfi1_" in alone.run("join", "hello", code=1)


def test_nobody_leaves_untold(alone):
    assert "needs a running gateway" in alone.run("leave", "--yes", code=1)


def test_a_folder_without_a_site_is_told(tmp_path):
    assert "gridfed init" in quick("known", "--config-dir", str(tmp_path), code=1)


def test_an_unknown_site_is_told(alone):
    for verb in (
        ["approve", "paris"],
        ["trust", "paris"],
        ["expel", "paris", "--yes"],
        ["keep", "paris"],
    ):
        assert "site 'paris' not found" in alone.run(*verb, code=1)


def test_a_token_says_who_and_can_be_revoked(alone):
    made = alone.json("token", "--user", "ada", "--projects", "risk,fx", "--expires", "1h")
    assert (made["user"], made["projects"], made["sites"]) == ("ada", ["fx", "risk"], ["london"])
    assert "is revoked" in alone.run("token", "--revoke", made["token"])
    assert "revoked" in alone.run("token", "--revoke", made["token"], code=1)
    assert "no token with the id '00dead' found here" in alone.run(
        "tokens", "revoke", "00dead", code=1
    )
    said = alone.run("token", "--user", "ada", "--projects", "ri\x1bsk", code=1)
    assert "the project name 'ri\\x1bsk' has invisible characters" in said
    assert "unknown scope 'rule'" in alone.run("token", "--user", "ada", "--scopes", "rule", code=1)


def test_the_folder_of_the_configuration_may_come_from_the_environment(alone, monkeypatch):
    monkeypatch.setenv("GRIDFED_CONFIG_DIR", str(alone.folder))
    assert "london" in quick("known")
    assert f"the database {alone.folder}" in quick("audit", code=1)


# --- how people write rules and times ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("all", permit(Verb.SEND)),
        ("pools=cpu,gpu", permit(Verb.SEND, pools=frozenset({"cpu", "gpu"}))),
        ("slots=100 projects=risk", permit(Verb.SEND, slots_max=100, projects=frozenset({"risk"}))),
        ("budget=5.5EUR", permit(Verb.SEND, budget_nanos=5_500_000_000, currency="EUR")),
        ("sites=@self,lyon", permit(Verb.SEND, sites=frozenset({"@self", "lyon"}))),
    ],
)
def test_rules_are_read(text, rule):
    assert from_plain(parse_rule(text, Verb.SEND, permits=True)) == rule


def test_a_rule_that_forbids_is_read():
    made = from_plain(parse_rule("projects=fx", Verb.RUN, permits=False))
    assert made == forbid(Verb.RUN, projects=frozenset({"fx"}))


@pytest.mark.parametrize(
    "text",
    ["slots=many", "colour=blue", "pools=", "everything", "budget=5", "slots", "", " ", "pools=a,"],
)
def test_a_rule_that_can_not_be_read_is_told(alone, text):
    assert "write" in alone.run("trust", "*", "--may-send", text, code=2)


def test_what_is_allowed_and_what_is_forbidden_are_kept_apart(alone):
    def rules():
        return {(each["rule"], each["verb"]) for each in alone.json("trust", "*")["rules"]}

    alone.run("trust", "*", "--may-send", "all", "--may-run", "all")
    alone.run("trust", "*", "--never-run", "projects=secret")
    everything = {("permit", "send"), ("permit", "run"), ("forbid", "run")}
    assert rules() == everything
    alone.run("trust", "*", "--may-run", "pools=farm")
    assert rules() == everything
    alone.run("trust", "*", "--never-run", "none", "--may-send", "none")
    assert rules() == {("permit", "run")}


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--may-run", "slots=5", "max_cost"),
        ("--may-run", "budget=5EUR", "max_cost"),
        ("--never-run", "classes=restricted", "has no effect yet"),
    ],
)
def test_a_rule_that_nobody_would_keep_is_refused(alone, option, text, said):
    assert said in alone.run("trust", "*", option, text, code=1)


@pytest.mark.parametrize(
    ("text", "span_s"), [("90s", 90), ("30m", 1800), ("24h", 86400), ("7d", 604800)]
)
def test_times_are_read(text, span_s):
    assert parse_span(text) == span_s


@pytest.mark.parametrize("text", ["", "5", "h", "-5m", "5 weeks"])
def test_a_time_that_can_not_be_read_is_told(alone, text):
    why = "has no unit" if text == "5" else "length of time"
    assert why in alone.run("invite", "--expires", text, code=2)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ('listen = "tcp://0.0.0.0:1"', "must be an address like tls+tcp://"),
        ('listen = "tls+tcp://0.0.0.0:7462"', "set advertise"),
        ('join_listen = "tls+tcp://[::]:7463"', "set advertise"),
        ('advertise = "tls+tcp://gw:1"', "must be a list"),
        ("connections = 0", "it must be 1 to"),
        ('frames_per_s = "many"', "must be a number"),
        ('follow_expulsions = "all"', "must be one of any, two, ours"),
        ("colour = 1", "unknown key 'colour'"),
    ],
)
def test_a_bad_setting_of_the_federation_is_told_with_its_place(tmp_path, setting, complaint):
    (tmp_path / "site.toml").write_text(f"[federation]\n{setting}\n")
    with pytest.raises(ConfigError, match=r"\[federation\]") as caught:
        check(load(str(tmp_path / "site.toml")), 0.0)
    assert complaint in str(caught.value)
