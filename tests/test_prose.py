"""Docstrings are in plain English: a sentence begins with its subject, and names it.

Words such as "who", "what" and "somebody" in place of a noun are the mark of prose that its readers
have to solve. Some are right ("whose", "what" in a question), so a small share is allowed.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORDS = re.compile(
    r"\b(who|whom|whose|what|whoever|whatever|whichever|somebody|nobody|anybody|everybody|someone)\b",
    re.IGNORECASE,
)
SHARE_MAX = 0.005
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


def docstrings(package: str) -> Iterator[str]:
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, DOCUMENTED):
                yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("package", ["federation", "gateway", "policies", "simulations"])
def test_docstrings_name_their_subjects(package):
    texts = list(docstrings(package))
    words = sum(len(re.findall(r"[A-Za-z']+", text)) for text in texts)
    vague = sum(len(WORDS.findall(text)) for text in texts)
    assert words > 1_000
    assert vague <= SHARE_MAX * words, f"{vague} of {words}"
