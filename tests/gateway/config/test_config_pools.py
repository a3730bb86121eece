"""The isolation of a local pool's slots, and their environments, as a file defines them."""

import pytest

from gateway.base.values import ConfigError
from gateway.config.environments import Confines, EnvironmentRules
from gateway.config.site import check, load
from gateway.grids.kinds import Installed

HEAD = '[[pool]]\nname = "here"\nkind = "local"\n'


@pytest.fixture
def read(tmp_path):
    """The first pool of a file with this text."""

    def read_(text):
        path = tmp_path / "site.toml"
        path.write_text(text)
        return check(load(str(path), Installed()), 0.0).pools[0]

    return read_


def test_limits_cores_and_gpus_are_read(read):
    more = 'cpus = 1.5\npids_max = 100\ncgroups = "required"\npin = true\ngpus = ["a", "b"]\n'
    pool = read(f"{HEAD}{more}tags = {{ gpu = 2 }}\n")
    assert pool.confines == Confines(1.5, 100, "required", True)
    assert pool.gpus_given == ("a", "b")
    assert read(HEAD).confines == Confines()
    assert read(HEAD).environments is None
    assert read(
        f'{HEAD}[pool.environments]\nsandbox = "bubblewrap"\n'
    ).environments == EnvironmentRules(sandbox="bubblewrap")


@pytest.mark.parametrize(
    ("tags", "given"),
    [("gpu = 2", ("0", "1")), ("gpu = true", ()), ("linux = true", ()), ("gpu = 1.5", ("0",))],
)
def test_gpus_are_counted_by_their_tag(read, tags, given):
    assert read(f"{HEAD}tags = {{ {tags} }}\n").gpus_given == given


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpus = 0.01", "cpus is 0.01: it must be 0.05 to 1024"),
        ("cpus = true", "cpus must be a number"),
        ("pids_max = 3", "pids_max is 3"),
        ('cgroups = "v2"', "cgroups is 'v2': it must be one of auto, off, required"),
        ("cgroups = []", "cgroups is []"),
        ("pin = 1", "pin must be true or false"),
        ('gpus = "0,1"', "gpus must be a list of device names"),
        ('gpus = ["0,1"]', "gpus must be a list of device names"),
        ('gpus = ["0"]', "gpus has 1 devices, but the tag gpu is 0: they must agree"),
        ("tags = { gpu = 1e12 }", "a host has at most 1024"),
        ("tags = { gpu = nan }", "tag gpu is nan"),
        ("tags = { gpu = -1 }", "tag gpu is -1"),
        ('[pool.environments]\npull = "now"', "[pool.environments]: pull is 'now'"),
        ("environments = 3", "[pool.environments]: must be a table"),
    ],
)
def test_what_is_wrong_is_named_with_its_pool(read, text, said):
    with pytest.raises(ConfigError) as caught:
        read(f"{HEAD}{text}\n")
    assert "[[pool]] here" in str(caught.value)
    assert said in str(caught.value)


def test_what_a_pool_may_cost_is_in_the_currency_of_its_price(read):
    text = '[[pool]]\nname = "here"\nkind = "processes"\nprice = "0.05 USD"\n'
    text += '[pool.scale]\nmax = 4\nhourly_cost = "40 {}"\n'
    assert read(text.format("USD")).scale.currency == "USD"
    with pytest.raises(ConfigError, match="hourly_cost is in EUR, but the price in USD"):
        read(text.format("EUR"))


@pytest.mark.parametrize(
    "text", ["cpus = 1", "pids_max = 99", "pin = true", "[pool.environments]\npackages = true"]
)
def test_a_remote_pools_workers_bring_their_own(read, text):
    with pytest.raises(ConfigError, match=r"for local pools .*; each worker of a remote pool sets"):
        read(f'[[pool]]\nname = "far"\n{text}\n')


GROWN = '[[pool]]\nname = "burst"\nkind = "processes"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{GROWN}[pool.scale]\nmax = 0\n",
            "line 5: [[pool]] burst, [pool.scale]: max is 0: it must be 1 to 1_000_000",
        ),
        (
            f"{GROWN}[pool.scale]\nmax = 2\n\n[pool.processes]\n# so many\nslots_max = 0\n",
            "line 9: [[pool]] burst, [pool.processes]: slots_max is 0",
        ),
        (f"{GROWN}[pool.scale]\nmin = 2\n", "line 4: [[pool]] burst, [pool.scale]: max is missing"),
        (f"{GROWN}scale.min = 1\nscale.max = 0\n", "line 5: [[pool]] burst, [pool.scale]: max is"),
        (
            f"{GROWN}scale = {{ min = 1, max = 0 }}\n",
            "line 4: [[pool]] burst, [pool.scale]: max is",
        ),
        (
            f"{GROWN}[pool.scale]\nmax = 2\nidel = 3\n",
            "line 6: [[pool]] burst, [pool.scale]: unknown key",
        ),
        (
            f"{GROWN}[pool.scale]\nmax = 2\nhourly_cost = '4 EUR'\n",
            "line 6: [[pool]] burst, [pool.scale]: hourly_cost is in EUR",
        ),
        ('[[pool]]\nname = "a"\nkind = "slrum"\n', "line 3: [[pool]] a: kind is 'slrum'"),
        ('[[pool]]\nname = "a"\n\npriec = "1 USD"\n', "line 4: [[pool]] a: unknown key 'priec'"),
        ('[[pool]]\nname = "a"\ntags = { gpu = 1 }\nregion = 3\n', "line 4: [[pool]] a: region"),
        ('[[pool]]\nnam = "a"\n', "line 1: a [[pool]] needs a name"),
        (
            '[[pool]]\nname = "a"\n[pool.tariff]\nzone = "UTC"\nbands = 3\n',
            "line 5: [[pool]] a: tariff: bands must be",
        ),
        (
            '[[pool]]\nname = "a"\n[pool.carbon]\ncloud = "aws"\n[pool.carbon.http]\nkeep_s = -1\n',
            "line 6: [[pool]] a, [pool.carbon]: http: keep_s",
        ),
        ('[site]\nname = "x"\nlisten = "tcp://a:1"\n', "line 3: [site] listen must be a list"),
        ("[limits]\n\nheartbeat_s = 0\n", "line 3: [limits] heartbeat_s is 0"),
        ("[contracts]\nlease_s = 0\n", "line 2: [contracts] lease_s"),
        ("# nothing\n[sites]\n", "line 2: the top level: unknown key 'sites'"),
        ("site = 3\n", "line 1: [site] must be a table"),
        (
            '[site]\nname = "x"\n[[show]]\nhidden = true\n[[show]]\n\nsite = 3\n',
            "line 7: [[show]] unknown key 'site'",
        ),
        ("[show]\ncoarse = true\n", "line 1: [[show]] must be an array of tables"),
        ("[alerts]\n\ntries = 0\n", "line 3: [alerts] tries is 0"),
        ('[[alert]]\nname = "a"\nkind = "x"\n', "line 3: [[alert]] a: kind is 'x'"),
        ('[[alert]]\nkind = "budget"\n', "line 1: [[alert]] needs a name"),
    ],
)
def test_a_mistake_has_the_line_of_its_key(tmp_path, text, said):
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / "site.toml"), Installed())
    assert f"site.toml: {said}" in str(caught.value)
