"""The table [pool.carbon], and each mistake with its place."""

import pytest

from gateway.base.values import ConfigError
from gateway.config.site import load
from policies.costs.carbon import Emissions, Intensity, Machine


@pytest.fixture
def read(tmp_path):
    """Read a pool with these lines; return the known facts of its emissions."""

    def read_(text):
        path = tmp_path / "site.toml"
        path.write_text(f'[[pool]]\nname = "p"\n{text}\n')
        return load(str(path)).pools[0]

    return read_


def test_a_pool_that_says_nothing_is_not_known(read):
    assert read("").emissions == Emissions()


def test_the_short_form_is_a_machine_that_always_draws_the_same(read):
    found = read("carbon_g_per_kwh = 400\nslot_watts = 12.5").emissions
    assert found == Emissions(Machine(12_500, 12_500), Intensity(400_000, "static"))


def test_coefficients_by_name(read):
    found = read('[pool.carbon]\ncloud = "aws"\nvcpus = 2\ngrid = "aws:eu-west-2"').emissions
    machine = Machine(1_480, 7_000, 2, 1_135)
    assert found == Emissions(machine, Intensity(225_000, "static aws:eu-west-2"))
    assert machine.busy_watts == pytest.approx(7.945)


def test_own_figures_win_over_names(read):
    text = """[pool.carbon]
cloud = "aws"
cpu = "skylake"
idle_watts = 0.1
pue = 1.4
embodied_kg = 1533.12
server_slots = 8
lifetime_years = 3
g_per_kwh = 91.44
"""
    machine = Machine(100, 4_260, 1, 1_400, 1_533_120, 94_608_000, 8)
    assert read(text).emissions == Emissions(machine, Intensity(91_440, "static"))


def test_a_series_and_a_source_on_the_net(read):
    series = read('[pool.carbon]\nseries = { file = "a.csv", repeats = true }').carbon.series
    assert (series.file, series.hour, series.repeats) == ("a.csv", "hour_utc", True)
    text = '[pool.carbon.http]\nurl = "https://h.example/x?k=1"\nvalue = "a.0.b"\nevery_s = 60'
    http = read(text).carbon.http
    assert (http.host, http.value, http.every_s) == ("h.example", ("a.0.b",), 60)


FORECAST = """[pool.carbon.http]
url = "https://h.example/x"
value = "a"
key_header = "auth-token"
key_env = "K"
[pool.carbon.http.forecast]
url = "https://h.example/{now}/fw48h"
entries = "data"
value = ["forecast", "estimate"]
time = "from"
"""


def test_what_a_source_tells_of_hours_to_come(read):
    found = read(FORECAST).carbon.http.forecast
    assert (found.url, found.entries) == ("https://h.example/{now}/fw48h", "data")
    assert (found.value, found.time) == (("forecast", "estimate"), "from")
    assert read(FORECAST.replace('entries = "data"', "")).carbon.http.forecast.entries == ""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('url = "https://h.example/{now}/fw48h"', "", "forecast: url is missing"),
        ('value = ["forecast", "estimate"]', "", "forecast: value is missing"),
        ('time = "from"', "", "forecast: time is missing"),
        ('time = "from"', 'time = "a..b"', "forecast: time must be 1 to 10 steps"),
        ('time = "from"', 'time = "from"\nlist = "data"', "forecast: unknown key 'list'"),
        ('entries = "data"', "entries = 3", "forecast: entries must be text"),
        ("h.example/{now}/fw48h", "other.example/{now}", "forecast: url must have the same host"),
        ("https://h.example/{now}/fw48h", "ftp://h.example/", "forecast: url must be http"),
        ("https://h.example/{now}/fw48h", "https://a:hush@h.example/", "must not hold a password"),
        ("https://h.example/{now}/fw48h", "http://h.example/", "url must be https://"),
    ],
)
def test_each_mistake_of_a_forecast_is_named(read, old, new, why):
    with pytest.raises(ConfigError, match=r"\[\[pool\]\] p.*" + why) as caught:
        read(FORECAST.replace(old, new))
    assert "hush" not in str(caught.value)


HTTP = '[pool.carbon.http]\nurl = "https://h.example/"\nvalue = "a"\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("slot_watts = -1", "slot_watts is -1"),
        ("slot_watts = nan", "slot_watts is nan"),
        ("slot_watts = 20001", "slot_watts is 20001"),
        ('slot_watts = "12"', "slot_watts must be a number"),
        ("carbon_g_per_kwh = -1", "carbon_g_per_kwh is -1: it must"),
        ("carbon_g_per_kwh = 400000", "must be 0 to 5000"),
        ("carbon_g_per_kwh = true", "carbon_g_per_kwh must be a number"),
        ("carbon = 3", r"\[pool.carbon\]: must be a table"),
        ("[pool.carbon]\nwatts = 3", r"\[pool.carbon\]: unknown key 'watts'"),
        ('[pool.carbon]\ncloud = "ibm"', "cloud is 'ibm'; known names: aws, azure, gcp"),
        ("[pool.carbon]\ncpu = 3", "cpu is 3; known names: broadwell"),
        ('[pool.carbon]\ngrid = "mars"', "grid is 'mars'; known names: aws:ap-east-1"),
        ("[pool.carbon]\ng_per_kwh = nan", "g_per_kwh is nan"),
        ('[pool.carbon]\ngrid = "aws:eu-west-2"\ng_per_kwh = 1', "grid and g_per_kwh"),
        ("[pool.carbon]\nmax_watts = inf", "max_watts is inf"),
        (
            "[pool.carbon]\nmax_watts = 1\nidle_watts = 2",
            "idle_watts must not be more than max_watts",
        ),
        ("[pool.carbon]\nidle_watts = 2", "idle_watts needs"),
        ("[pool.carbon]\npue = 1.2", "pue needs"),
        ('[pool.carbon]\ncloud = "aws"\npue = 0.9', "pue is 0.9"),
        ('[pool.carbon]\ncloud = "aws"\nvcpus = 0', "vcpus is 0"),
        ('[pool.carbon]\ncloud = "aws"\nembodied_kg = 3', "embodied_kg and server_slots"),
        ('[pool.carbon]\ncloud = "aws"\nserver_slots = 3', "embodied_kg and server_slots"),
        ('slot_watts = 1\n[pool.carbon]\ncloud = "aws"', "and so does slot_watts"),
        ("carbon_g_per_kwh = 1\n[pool.carbon]\ng_per_kwh = 1", "so does carbon_g_per_kwh"),
        ("[pool.carbon]\nseries = 3", "series must be a table"),
        ("[pool.carbon]\nseries = {}", "series: file is missing"),
        ("[pool.carbon]\nseries = { file = 3 }", "series: file must be text"),
        ('[pool.carbon]\nseries = { file = "a", col = "b" }', "series: unknown key 'col'"),
        ('[pool.carbon]\nseries = { file = "a", repeats = 1 }', "repeats must be true or false"),
        (f'[pool.carbon]\nseries = {{ file = "a" }}\n{HTTP}', "series and http"),
        ('[pool.carbon.http]\nvalue = "a"', "http: url is missing"),
        ('[pool.carbon.http]\nurl = "https://h/"', "http: value is missing"),
        ('[pool.carbon.http]\nurl = "ftp://h/"\nvalue = "a"', "must be http:// or https://"),
        ('[pool.carbon.http]\nurl = "https://[h/"\nvalue = "a"', "url is malformed"),
        ('[pool.carbon.http]\nurl = "https://a:hush@h/"\nvalue = "a"', "must not hold a password"),
        ('[pool.carbon.http]\nurl = "https://h/"\nvalue = []', "value must be a path"),
        ('[pool.carbon.http]\nurl = "https://h/"\nvalue = "a..b"', "1 to 10 steps"),
        (f'[pool.carbon.http]\nurl = "https://h/"\nvalue = "{"a." * 10}b"', "1 to 10 steps"),
        (HTTP + "timeout_s = 0", "http: timeout_s is 0"),
        (HTTP + "keep_s = 60", "keep_s is less than fresh_s"),
        (HTTP + 'key_header = "auth-token"', "a key needs key_header"),
        (HTTP + 'key_env = "KEY"', "a key needs key_header"),
        (HTTP + 'key_header = "a"\nkey_env = "K"\nkey_file = "f"', "give only one of them"),
        (HTTP + 'key_header = "a: b"\nkey_env = "K"', "letters, digits and dashes"),
        (
            '[pool.carbon.http]\nurl = "http://h/"\nvalue = "a"\nkey_header = "a"\nkey_env = "K"',
            "url must be https://",
        ),
    ],
)
def test_each_mistake_is_named_with_its_place(read, text, why):
    with pytest.raises(ConfigError, match=r"\[\[pool\]\] p.*" + why) as caught:
        read(text)
    assert "hush" not in str(caught.value)
