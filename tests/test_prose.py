"""Docstrings, comments and texts for users are in plain English: a sentence names its subject.

Words such as "who", "what" and "somebody" in place of a noun are the mark of prose that its readers
have to solve. Some are right ("whose", "what" in a question), so a small share is allowed.
"""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORDS = re.compile(
    r"\b(who|whom|whose|what|whoever|whatever|whichever|somebody|nobody|anybody|everybody|someone)\b",
    re.IGNORECASE,
)
SHARE_MAX = 0.005
PACKAGES = ("federation", "gateway", "policies", "simulations", "tests", "benchmarks", "examples")
# The packages whose error messages, log lines, help texts and table heads are held as well.
SPOKEN = (
    *("alerts", "api", "base", "carbon", "cli", "command.py", "config", "peering", "reservations"),
    *("runtime", "sessions", "settlement", "site.py", "trust"),
)
TEXT_WORDS_MIN = 4  # shorter literals are keys, names and units
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


def docstrings(package: str) -> Iterator[str]:
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, DOCUMENTED):
                yield ast.get_docstring(node) or ""


def texts_of(path: Path) -> Iterator[str]:
    """Yield the string literals of a module that are sentences, without docstrings.

    The parts of an f-string between its values are one text.
    """
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        match waiting.pop():
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Constant(value=str(text)):
                pass
            case ast.JoinedStr(values=parts):
                text = " ".join(each.value for each in parts if isinstance(each, ast.Constant))
                waiting += (each for each in parts if isinstance(each, ast.FormattedValue))
            case node:
                waiting += ast.iter_child_nodes(node)
                continue
        if len(words_of(text)) >= TEXT_WORDS_MIN:
            yield text


def comments(path: Path) -> Iterator[str]:
    """Yield the comments of a module, each line of a longer one by itself."""
    with path.open() as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.string


def words_of(text: str) -> list[str]:
    return re.findall(r"[A-Za-z']+", text)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_name_their_subjects(package):
    texts = list(docstrings(package))
    words = sum(len(words_of(text)) for text in texts)
    vague = sum(len(WORDS.findall(text)) for text in texts)
    assert words > 1_000
    assert vague <= SHARE_MAX * words, f"{vague} of {words}"


@pytest.mark.parametrize("package", ["federation", "gateway", "policies", "simulations"])
def test_comments_name_their_subjects(package):
    texts = [text for path in (ROOT / package).rglob("*.py") for text in comments(path)]
    words = sum(len(words_of(text)) for text in texts)
    vague = [text for text in texts for _ in WORDS.findall(text)]
    assert words > 1_000
    assert len(vague) <= SHARE_MAX * words, f"{len(vague)} of {words}: {vague}"


@pytest.mark.parametrize(
    ("roots", "share_max"),
    [
        ("federation gateway policies simulations benchmarks tests", SHARE_MAX),
        ("docs", 0.006),
        ("docs/decisions", SHARE_MAX),
    ],
)
def test_documents_name_their_subjects(roots, share_max):
    """READMEs of packages and tests, user documents, and decisions."""
    if roots.startswith("docs"):
        paths = (ROOT / roots).glob("*.md")
    else:
        paths = (path for root in roots.split() for path in (ROOT / root).rglob("README.md"))
    texts = [path.read_text() for path in sorted(paths)]
    words = sum(len(words_of(text)) for text in texts)
    vague = sum(len(WORDS.findall(text)) for text in texts)
    assert words > 5_000
    assert vague <= share_max * words, f"{vague} of {words}"


def test_texts_for_users_name_their_subjects():
    roots = [ROOT / "gateway" / name for name in SPOKEN]
    paths = [path for root in roots for path in (root.rglob("*.py") if root.is_dir() else [root])]
    texts = [text for path in sorted(paths) for text in texts_of(path)]
    vague = [text for text in texts for _ in WORDS.findall(text)]
    words = sum(len(words_of(text)) for text in texts)
    assert words > 5_000
    assert len(vague) <= SHARE_MAX * words, f"{len(vague)} of {words}: {sorted(set(vague))}"


SENTENCE_WORDS_MAX = 35
# Sentences over it that remain, most of them lists of names. It only ever gets lower.
LONG_SENTENCES_MAX = 210


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a document, without its tables, headings, code and links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*] |\s*\d+\. )", text):
        lines = [line for line in block.splitlines() if not line.startswith(("    ", "|", "#"))]
        plain = re.sub(r"\]\([^)]*\)", "]", " ".join(" ".join(lines).split()))
        yield from re.split(r"(?<=[.?!])\s+(?=[A-Z`*(\[0-9])", plain)


def test_long_sentences_of_documents_get_no_more():
    texts = [path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))]
    lengths = [len(words_of(each)) for text in texts for each in sentences_of(text)]
    assert len(lengths) > 2_000
    assert sum(each > SENTENCE_WORDS_MAX for each in lengths) <= LONG_SENTENCES_MAX
