"""Forbids unpickling in gateway processes: an attempt raises and is logged.

A pickle runs its author's code. Import rules keep `pickle` out of the gateway's own modules; this
module keeps it out of the process, including libraries. The interpreter announces every class or
function that an unpickler looks up (the audit event `pickle.find_class`), and after
`forbid_unpickling` each lookup is refused. By design this can't be undone. Child processes are not
affected: slots, which depend on unpickling, are child processes.
"""

import sys
from collections.abc import Callable
from typing import Any

_is_forbidden = False


class UnpicklingForbidden(RuntimeError):
    """Code in this process tried to unpickle."""


def forbid_unpickling(say: Callable[[str], None]) -> None:
    """Make every unpickling in this process fail, for good, after calling `say` with a text."""
    global _is_forbidden
    if _is_forbidden:
        return
    _is_forbidden = True

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "pickle.find_class":
            return
        module, name = arguments
        what = f"attempt to unpickle {str(module)[:100]}.{str(name)[:100]} in a gateway"
        say(what)
        raise UnpicklingForbidden(what)

    sys.addaudithook(refuse)
