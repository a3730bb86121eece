"""The answers that people see, as plain maps and lists. Pure."""
