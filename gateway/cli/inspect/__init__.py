"""Commands that show a running gateway, and reserve slots at it."""
