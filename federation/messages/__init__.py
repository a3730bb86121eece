"""Every message of the protocol, and how it becomes bytes and is checked."""
