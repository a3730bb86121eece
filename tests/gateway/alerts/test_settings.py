"""The tables [alerts] and [[alert]]: the accepted keys, and the refusals with their places."""

import pytest

from gateway.base.values import ConfigError
from gateway.config.alerts import AlertPace, AlertsConfig, Watched
from gateway.config.site import PoolConfig, SiteConfig, check, load
from policies.calendar.periods import PeriodLength
from policies.costs.alerts import AlertBudget, AlertScope, PriceLimit, Severity, Unacknowledged

BUDGET = 'name = "desk"\nkind = "budget"\namount = "1000 USD"\n'
PRICE = 'name = "dear"\nkind = "price"\nlimit = "0.10 USD"\n'
PENDING = 'name = "late"\nkind = "unacknowledged"\n'


@pytest.fixture
def read(tmp_path):
    """Read a file of these lines; return its settings of alerts."""

    def read_(text):
        path = tmp_path / "site.toml"
        path.write_text(text)
        return load(str(path)).alerts

    return read_


def test_without_a_word_nothing_is_watched(read):
    assert read("").watched == ()


def test_all_that_can_be_said_is_read(read, tmp_path):
    (tmp_path / "ca.pem").touch()
    found = read(
        f'[alerts]\ninterval_s = 5\ntries = 2\nca_file = "{tmp_path}/ca.pem"\n[[alert]]\n{BUDGET}'
        'origin = "rome"\nperiod = "quarter"\nzone = "Europe/London"\nlevels = [90, 10, 90]\n'
        'severity = "critical"\nwebhook = ["https://a.example/x", "http://[::1]:8080/"]\n'
        f'[[alert]]\n{PRICE}site = "paris"\npool = "gpu"\nclear_percent = 0\n'
        f'command = ["/bin/page", ""]\n[[alert]]\n{PENDING}hours = 1.5\nside = "sell"\n'
    )
    assert found.pace == AlertPace(interval_s=5, tries=2, ca_file=f"{tmp_path}/ca.pem")
    desk, dear, late = found.watched
    rule = desk.rule
    assert isinstance(rule, AlertBudget)
    assert (rule.amount_nanos, rule.currency, rule.levels) == (1000 * 10**9, "USD", (10, 90))
    assert (rule.whose, rule.of, rule.span) == (AlertScope.ORIGIN, "rome", PeriodLength.QUARTER)
    assert (rule.zone.key, rule.severity) == ("Europe/London", Severity.CRITICAL)
    assert desk.webhooks == ("https://a.example/x", "http://[::1]:8080/")
    assert dear.rule == PriceLimit("dear", 10**8, "USD", "paris", "gpu", 0)
    assert dear.command == ("/bin/page", "")
    assert late == Watched(Unacknowledged("late", 5400.0, "", "sell"))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (BUDGET.replace("USD", "usd"), r"\[\[alert\]\] desk: amount: 'usd' is not a currency"),
        (BUDGET.replace("USD", "Bitcoin"), "desk: amount: 'Bitcoin' is not a currency"),
        (BUDGET.replace("1000", "0"), "desk: amount must be above zero"),
        (BUDGET.replace("1000", "-1"), "desk: amount: '-1 USD' is negative"),
        (BUDGET.replace('"1000 USD"', "1000"), "desk: amount must be an amount of money"),
        ('name = "desk"\nkind = "budget"\n', "desk: amount must be an amount of money"),
        (BUDGET + "levels = [0, 50]", "desk: each value of levels is 0: it must be 1 to 1000"),
        (BUDGET + "levels = [-5]", "desk: each value of levels is -5"),
        (BUDGET + "levels = [50.5]", "desk: each value of levels is 50.5: it must be a whole"),
        (BUDGET + "levels = []", "desk: levels must be a list of 1 to 20"),
        (BUDGET + "levels = 50", "desk: levels must be a list"),
        (BUDGET + "levels = [true]", "desk: each value of levels must be a number"),
        (BUDGET + 'period = "decade"', "desk: period is 'decade': it must be day or week"),
        (BUDGET + 'zone = "Mars"', "desk: zone: 'Mars' is not a time zone"),
        (BUDGET + 'project = "a"\nuser = "b"', "desk: project and user: give only one"),
        (BUDGET + 'user = ""', "desk: user is empty"),
        (BUDGET + 'pool = "a"', "desk: unknown key 'pool'; known keys: amount"),
        (BUDGET + 'severity = "bad"', "desk: severity is 'bad': it must be info or warning"),
        (BUDGET.replace("budget", "bugdet"), "desk: kind is 'bugdet': it must be budget or price"),
        ('name = "desk"', "desk: kind is None"),
        ('kind = "budget"', r"\[\[alert\]\] needs a name"),
        (BUDGET.replace("desk", "a\\u001bb"), r"\[\[alert\]\] needs a name"),
        (BUDGET + 'command = "page me"', "desk: command must be a list.*it is run without a shell"),
        (BUDGET + "command = []", "desk: command has no program"),
        (BUDGET + 'command = ["a", 1]', "desk: command must be a list of strings"),
        (BUDGET + 'command = ["a\\u0000"]', "desk: command must be a list of strings"),
        (BUDGET + 'webhook = "http:///path"', "desk: webhook has no host"),
        (BUDGET + 'webhook = "https://:443/"', "desk: webhook has no host"),
        (BUDGET + 'webhook = "https://a:b/"', "desk: webhook: Port could not"),
        (BUDGET + 'webhook = "ftp://a/"', "desk: webhook must begin with https"),
        (BUDGET + 'webhook = "https://a b/"', "desk: webhook must be printable, without spaces"),
        (BUDGET + "webhook = 5", "desk: webhook must be an address"),
        (BUDGET + "webhook = [5]", "desk: webhook must be text"),
        (PRICE.replace("0.10 USD", "0.10"), "dear: limit: '0.10' is not an amount"),
        (PRICE + "clear_percent = 101", "dear: clear_percent is 101: it must be 0 to 100"),
        (PENDING + "hours = -1", "late: hours is -1"),
        (PENDING + 'side = "both"', "late: side is 'both': it must be buy or sell"),
        (f"{BUDGET}[[alert]]\n{BUDGET}", "desk: the name is used twice"),
        (f"{BUDGET}[alerts]\ntries = 0", r"\[alerts\] tries is 0: it must be 1 to 10"),
        (f"{BUDGET}[alerts]\ninterval_s = 0", r"\[alerts\] interval_s is 0"),
        (f"{BUDGET}[alerts]\nca_file = '/nowhere'", r"\[alerts\] ca_file: file"),
        (f"{BUDGET}[alerts]\npause_s = 1", r"\[alerts\] unknown key 'pause_s'"),
    ],
)
def test_a_mistake_is_named_with_its_place(read, lines, said):
    with pytest.raises(ConfigError, match=r"site\.toml: .*" + said):
        read(f"[[alert]]\n{lines}")


def test_a_budget_of_a_group(read):
    (found,) = read(f'[[alert]]\n{BUDGET}group = "quants"').watched
    assert isinstance(found.rule, AlertBudget)
    assert (found.rule.whose, found.rule.of) == (AlertScope.GROUP, "quants")


def test_a_price_of_a_pool_that_our_site_has_not_is_refused_at_the_start():
    def checked(site, pool, pools=("cpu", "gpu")):
        watched = Watched(PriceLimit("dear", 1, "USD", site=site, pool=pool))
        made = tuple(PoolConfig(name) for name in pools)
        check(SiteConfig(name="london", pools=made, alerts=AlertsConfig(watched=(watched,))), 0.0)

    complaint = r"\[\[alert\]\] dear: pool 'gqu' not found at this site; its pools: cpu, gpu"
    with pytest.raises(ConfigError, match=complaint):
        checked("london", "gqu")
    checked("london", "gpu")
    checked("london", "")
    # Which pools others have nobody knows yet.
    checked("paris", "gqu")
    checked("", "gqu")


def test_alert_is_an_array_of_tables(read):
    with pytest.raises(ConfigError, match=r"\[\[alert\]\] must be an array of tables"):
        read('[alert]\nname = "x"')
    with pytest.raises(ConfigError, match=r"\[alerts\] must be a table"):
        read("alerts = 3")
