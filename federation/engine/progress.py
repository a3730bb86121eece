"""A progress bar that works in a terminal and in a notebook, and never raises an error."""

import importlib.util
import sys
from typing import Any, Final

from federation.messages.printed import STDERR, STDOUT
from federation.words import clean, clean_lines

LOG_INTERVAL_S: Final = 10.0  # between two states of a bar that goes to a file


def bar(total: int | None, name: str) -> Any:
    """Return a bar of `total` steps (None if unknown), with update() and close()."""
    from tqdm import tqdm

    name = clean(name)

    # tqdm makes half a bar before it checks this, and that half complains when it is collected.
    if "ipykernel" in sys.modules and importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as notebook_tqdm

        return notebook_tqdm(total=total, desc=name, unit="task")
    return tqdm(
        total=total,
        desc=name,
        unit="task",
        file=sys.stderr,
        dynamic_ncols=True,
        mininterval=0.1 if sys.stderr.isatty() else LOG_INTERVAL_S,
    )


def show(text: str, stream: int = STDOUT) -> None:
    """Write the output of a task to the stream of its name, on lines of its own if there is a bar.

    Escape sequences and the like are written out: the text comes from another host. Raises the
    errors of the stream.
    """
    text = clean_lines(text)
    out = sys.stderr if stream == STDERR else sys.stdout
    module = sys.modules.get("tqdm")
    if module is None or not getattr(module.tqdm, "_instances", None):
        out.write(text)
        return
    module.tqdm.write(text.removesuffix("\n"), file=out)
