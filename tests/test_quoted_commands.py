"""Commands that messages quote exist, with the options that they quote."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gateway.cli.main import cli

ROOT = Path(__file__).parents[1]
QUOTED = re.compile(r"`gridfed ([a-z][^`\n]*)`")


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module, with a name in place of each value."""
    inner = {
        part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner:
            yield node.value


def quoted() -> list[tuple[str, str]]:
    found = set()
    for folder in ("federation", "policies", "gateway"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for text in texts(ast.parse(path.read_text(encoding="utf-8"))):
                found |= {(each, str(path.relative_to(ROOT))) for each in QUOTED.findall(text)}
    return sorted(each for each in found if not re.match(r"x\b", each[0]))  # of a value


@pytest.mark.parametrize(("line", "path"), quoted())
def test_a_quoted_command_exists_and_takes_its_options(line: str, path: str) -> None:
    words = line.replace("[", " ").replace("]", " ").split()
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words[0])
        if found is None:
            break
        command, words = found, words[1:]
    assert command is not cli, f"{path}: `gridfed {line}` is no command"
    if isinstance(command, click.Group):
        assert (
            not words
            or command.invoke_without_command
            or words[0].isupper()
            or words[0].startswith(("x", "-"))
        ), f"{path}: `gridfed {line}`: no command {words[0]!r}"
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    options = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    assert options <= {*known, "--help", "--version"}, f"{path}: `gridfed {line}`"
