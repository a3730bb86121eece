"""Named scenarios: each module has some, each a function from a seed to a WorldPlan.

`python -m simulations list` shows them, by the first line of their docstrings. A new module is
found automatically.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Final

from simulations.world.plan import WorldPlan

Scenario = Callable[[int], WorldPlan]


def _all() -> dict[str, Scenario]:
    found: dict[str, Scenario] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                found[name] = function
    return dict(sorted(found.items()))


SCENARIOS: Final[dict[str, Scenario]] = _all()
