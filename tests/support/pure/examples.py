"""One message of each class, with a valid value in each field."""

import dataclasses

EXAMPLES = {
    "Count": 7,
    "Number": 1.5,
    "Number | None": None,
    "Count | None": 3,
    "Text": "text",
    "bytes": b"bytes",
    "bool": True,
    "Names": ["paris", "lyon"],
    "Texts": ["tcp://a:1", "ä"],
    "Payloads": [b"one", b""],
    "list[int]": [1],
    "Pairs": [[0, 5], [7, 9]],
    "Failures": [[0, "error", "text", b"payload"]],
    "Prints": [[0, "text"]],
    "Plain": {"key": [1, "two", None]},
    "Anything": {"a": [1.5, b"x"]},
    "Maps": [{"a": 1, "b": None}],
    "Rows": [[1, 2], []],
    "Lines": [["wire", 7]],
}


def example(cls):
    return cls(*(EXAMPLES[cls.__annotations__[f.name]] for f in dataclasses.fields(cls)))
