"""The gateways that a client may use: named, found, measured, dialled."""
