"""Names of the jobs that run nodes of a graph: by the layers of their keys. Pure.

    ('sum-aggregate-6f2b…', 0), ('getitem-91c0…', 4) ─► "dask: sum-aggregate, getitem"

Dask names a key after its operation, with the digest of the operation's arguments behind it.
"""

import re
from collections.abc import Hashable, Iterable
from typing import Any, Final

from federation.graphs.nodes import run_node
from federation.graphs.reading import GraphCall, GraphPlan
from federation.wishes import NAME_CHARS_MAX
from federation.words import clean

LAYERS_SHOWN: Final = 3
LAYER_CHARS: Final = 26
_NUMBER: Final = re.compile(r"[0-9]+")
_DIGEST: Final = re.compile(r"(?=[a-f]*[0-9])[0-9a-f]{8,}")


def layer_of(key: Hashable) -> str:
    """Return the layer of a key: its name without digests and numbers at the end."""
    while isinstance(key, tuple) and key:
        key = key[0]
    words = clean(str(key))[:NAME_CHARS_MAX].split("-")
    while len(words) > 1 and (_NUMBER.fullmatch(words[-1]) or _DIGEST.fullmatch(words[-1])):
        words.pop()
    found = "-".join(words)
    return found if len(found) <= LAYER_CHARS else f"{found[: LAYER_CHARS - 1]}…"


def job_name(plan: GraphPlan, function: Any) -> str:
    """Return a name for the job of those calls of a graph that run this function.

    It has the layers that stand nearest to the result, as these are what the user has asked for.
    """
    of_it = (key for key, step in reversed(plan.steps) if _runs(step, function))
    return f"{'dask' if function is run_node else 'graph'}: {_listed(map(layer_of, of_it))}"


def _runs(step: Any, function: Any) -> bool:
    return isinstance(step, GraphCall) and step.function is function


def _listed(layers: Iterable[str]) -> str:
    found: list[str] = []
    for layer in layers:
        if layer in found:
            continue
        if len(found) == LAYERS_SHOWN:
            return f"{', '.join(found)} …"
        found.append(layer)
    return ", ".join(found)
