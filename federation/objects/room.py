"""The texts about room: for objects, and for results in messages. Pure."""

from typing import Final


def no_room(bytes_max: int, held_bytes: int, size: int, whose: str = "") -> str:
    """Say that an object does not fit beside those that are held; an empty text if it does.

    `whose` are they, as in "of user ann"; empty: all of the site.
    """
    if held_bytes + size <= bytes_max:
        return ""
    those = f"objects {whose}" if whose else "objects"
    room = f"the site has room for {bytes_max:,} bytes of {those}"
    more = f"ask the operator for more room ({_key(whose)} in [objects])"
    if size > bytes_max:
        return f"{room}, and this one has {size:,}: put it in parts, or {more}"
    return (
        f"{room}, holds {held_bytes:,}, and this one has {size:,}: release others first "
        f"(`gridfed objects` lists them), or {more}"
    )


def _key(whose: str) -> str:
    """Return the key of the configuration that sets a limit."""
    for start, key in (("of user ", "`user`"), ("of project ", "`project`"), ("in ", "`memory`")):
        if whose.startswith(start):
            return key
    return "`memory`, or `spill` where objects go to disk,"


_LIMIT: Final = " bytes, the limit is "
_RETURN: Final = "return less data, or write it to a file and return its name"
_KEEPS: Final = "large results stay at the site and are mapped"


def too_large(kind: str, size: int, bytes_max: int) -> str:
    """Say that a result of a type is too large for a message, with what helps anyone."""
    return f"the result, of type {kind}, has {size:,}{_LIMIT}{bytes_max:,}: {_RETURN}"


def with_advice(text: str, results: str | None) -> str:
    """Add to the text of a result that was too large what its client can do beside that.

    Args:
        text: the text of the failure.
        results: the option `results` as its job was opened with it: "" where results come in
            messages, by that option or as the client is on another host; None: the job is detached.
    """
    first, newline, rest = text.partition("\n")
    if _LIMIT not in first or not first.endswith(_RETURN):
        return text  # another failure, or the text of a worker of an older version
    if results is None:
        advice = f'submit_job keeps results as values; of submit and map {_KEEPS} (results="auto")'
    elif results:
        advice = "it ran where no result can stay as an object: at another host, or another site"
    else:
        advice = f'with results="auto" in a client on the own host of the gateway {_KEEPS}'
    return f"{first}; {advice}{newline}{rest}"
