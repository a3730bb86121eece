"""A mistake in a table of Slurm's is told with its line."""

import pytest

from gateway.base.values import ConfigError
from gateway.config.site import load
from gateway.grids.kinds import Installed

SLURM = '[[pool]]\nname = "hpc"\nkind = "slurm"\n[pool.scale]\nmax = 4\n'
SLURM += '[pool.slurm]\npython = "/p"\npartition = "p"\n'


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("constraint = 3\n", "constraint"),
        ("options = { exclusive = 3 }\n", "options"),
        ("[pool.slurm.options]\nexclusive = 3\n", "options"),
    ],
)
def test_a_mistake_has_the_line_of_its_key(tmp_path, text, key):
    (tmp_path / "site.toml").write_text(f"{SLURM}{text}")
    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / "site.toml"), Installed())
    said = f"site.toml: line 9: [[pool]] hpc, [pool.slurm]: {key}"
    assert said in str(caught.value)
