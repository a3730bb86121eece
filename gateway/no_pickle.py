"""A gateway can't unpickle: whoever tries, in this process, fails and is heard.

A pickle runs code of whoever made it. Import rules keep `pickle` out of the gateway's own modules;
this keeps it out of the process, whatever library might reach for it: the interpreter announces
every class or function that an unpickler looks up (the audit event `pickle.find_class`), and from
`forbid_unpickling` on the answer is no. There is no way back, which is the point. Child processes
are not concerned: slots, which live from unpickling, are some.
"""

import sys
from collections.abc import Callable
from typing import Any

_is_forbidden = False


class UnpicklingForbidden(RuntimeError):
    """Something in this process tried to unpickle."""


def forbid_unpickling(say: Callable[[str], None]) -> None:
    """Make every unpickling in this process fail, once `say` has been told of it. For good."""
    global _is_forbidden
    if _is_forbidden:
        return
    _is_forbidden = True

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "pickle.find_class":
            return
        module, name = arguments
        what = f"something tried to unpickle {str(module)[:100]}.{str(name)[:100]} in a gateway"
        say(what)
        raise UnpicklingForbidden(what)

    sys.addaudithook(refuse)
