"""The text about the room for objects, as client, gateway and object host give it. Pure."""


def no_room(bytes_max: int, held_bytes: int, size: int, whose: str = "") -> str:
    """Say that an object does not fit beside those that are held; an empty text if it does.

    `whose` are they, as in "of user ann"; empty: all of the site.
    """
    if held_bytes + size <= bytes_max:
        return ""
    those = f"objects {whose}" if whose else "objects"
    room = f"the site has room for {bytes_max:,} bytes of {those}"
    if size > bytes_max:
        return f"{room}, and this one has {size:,}: put it in parts, or ask for more room"
    return f"{room}, holds {held_bytes:,}, and this one has {size:,}: release others first"
