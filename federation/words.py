"""Words that people read, as all of the project says them. Pure."""


def count(number: int, noun: str) -> str:
    """So many of them: `1 slot`, `2,000 slots`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
