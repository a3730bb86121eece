"""What holds a local pool's slots, and what they may run in, as a file says it."""

import pytest

from gateway.config import check, load
from gateway.knobs import ConfigError
from gateway.worker.rules import Confines, Rules

HEAD = '[[pool]]\nname = "here"\nkind = "local"\n'


@pytest.fixture
def read(tmp_path):
    """The first pool of a file with this text."""

    def read_(text):
        path = tmp_path / "site.toml"
        path.write_text(text)
        return check(load(str(path)), 0.0).pools[0]

    return read_


def test_limits_cores_and_gpus_are_read(read):
    more = 'cpus = 1.5\npids_max = 100\ncgroups = "required"\npin = true\ngpus = ["a", "b"]\n'
    pool = read(f"{HEAD}{more}tags = {{ gpu = 2 }}\n")
    assert pool.confines == Confines(1.5, 100, "required", True)
    assert pool.gpus_given == ("a", "b")
    assert read(HEAD).confines == Confines()
    assert read(HEAD).environments is None
    assert read(f'{HEAD}[pool.environments]\nsandbox = "bubblewrap"\n').environments == Rules(
        sandbox="bubblewrap"
    )


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
        ('gpus = "0,1"', "gpus must be a list of names"),
        ('gpus = ["0,1"]', "gpus must be a list of names"),
        ('gpus = ["0"]', "gpus are 1 and the tag gpu is 0: they must agree"),
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
    with pytest.raises(ConfigError, match="hourly_cost is in EUR, and its price in USD"):
        read(text.format("EUR"))


@pytest.mark.parametrize(
    "text", ["cpus = 1", "pids_max = 99", "pin = true", "[pool.environments]\npackages = true"]
)
def test_a_remote_pools_workers_bring_their_own(read, text):
    with pytest.raises(ConfigError, match=r"for local pools; to a remote one each worker brings"):
        read(f'[[pool]]\nname = "far"\n{text}\n')


GROWN = '[[pool]]\nname = "burst"\nkind = "processes"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[pool.scale]\nmax = 0\n", "line 4: [[pool]] burst, [pool.scale]: max is 0"),
        (
            "[pool.scale]\nmax = 2\n\n[pool.processes]\nslots_max = 0\n",
            "line 7: [[pool]] burst, [pool.processes]: slots_max is 0",
        ),
    ],
)
def test_a_grids_tables_are_named_with_their_line(read, text, said):
    with pytest.raises(ConfigError) as caught:
        read(f"{GROWN}{text}")
    assert said in str(caught.value)
