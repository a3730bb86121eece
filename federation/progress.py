"""A progress bar that works in a terminal and in a notebook, and never is an error."""

import sys
import warnings
from typing import Any


def bar(total: int | None, name: str) -> Any:
    """A bar of `total` steps (None when nobody knows), with update() and close()."""
    from tqdm import tqdm

    if "ipykernel" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                from tqdm.notebook import tqdm as notebook_tqdm

                return notebook_tqdm(total=total, desc=name, unit="task")
            except ImportError:
                pass  # no widgets here: the text bar shows in any notebook
    return tqdm(total=total, desc=name, unit="task", file=sys.stderr, dynamic_ncols=True)
