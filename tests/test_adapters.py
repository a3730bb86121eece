"""An adapter is a plug-in: without its folder and its entry points the rest of the tree is whole.

In a copy of the tree an adapter is deleted, and by rule its own parts: the tests and stand-ins that
bear its name, its page in docs/, and the rows of tables about it.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.thorough]

ROOT = Path(__file__).parents[1]
ADAPTERS = ("ec2", "slurm", "symphony")
LIMIT_S = 600
# The tests of what knows of adapters by their entry points.
AFFECTED = tuple(f"tests/gateway/{name}" for name in ("base", "checking", "cli", "config", "grids"))

# Runs in the copy. Modules below `soam` run on the hosts of Symphony, under another Python.
IMPORT_ALL = """
import importlib, pkgutil
for root in ("federation", "policies", "gateway"):
    package = importlib.import_module(root)
    for each in pkgutil.walk_packages(package.__path__, root + "."):
        if not each.name.endswith("__main__") and ".soam" not in each.name:
            importlib.import_module(each.name)
"""


def copy_tree(target):
    """Copy the files that are under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def remove(tree, adapter):
    """Delete an adapter and its own parts."""
    module, folder, page = (
        f"gateway.grids.{adapter}",
        f"gateway/grids/{adapter}/",
        f"grids_{adapter}.md",
    )
    shutil.rmtree(tree / folder)
    (tree / "docs" / page).unlink()
    project = tree / "pyproject.toml"
    entry = re.compile(rf'(?m)^\w+ = "{re.escape(module)}[.:].*\n')
    project.write_text(entry.sub("", project.read_text()))
    own = re.compile(rf"(test_)?{adapter}(_\w+)?(\.py)?")
    for path in sorted((tree / "tests").rglob("*")):
        if own.fullmatch(path.name) and path.exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in tree.rglob("*.md"):
        lines = path.read_text().splitlines(keepends=True)
        named = (f"`{folder}`", f"({page})", f"/{page})")
        if path.parent == tree / "gateway" / "grids":
            named += (f"`{adapter}/`",)
        rest = [
            line for line in lines if not (line[0] == "|" and any(each in line for each in named))
        ]
        text = re.sub(rf"\[([^\]]*)\]\([^)]*{page}[^)]*\)", r"\1", "".join(rest))
        path.write_text(text)


def install(tree):
    """Write the metadata of an installation of the tree: its entry points and its extras."""
    text = (tree / "pyproject.toml").read_text()
    groups = re.findall(r'(?m)^\[project\.entry-points\."([\w.]+)"\]\n((?:\w.*\n)*)', text)
    folder = tree / "gridfed-0.dist-info"
    folder.mkdir()
    told = ["Metadata-Version: 2.1", "Name: gridfed", "Version: 0"]
    project = tomllib.loads(text)["project"]
    told += [f"Requires-Dist: {each}" for each in project["dependencies"]]
    for extra, libraries in project["optional-dependencies"].items():
        told.append(f"Provides-Extra: {extra}")
        told += [f'Requires-Dist: {each}; extra == "{extra}"' for each in libraries]
    (folder / "METADATA").write_text("\n".join(told) + "\n")
    lines = [f"[{name}]\n{body.replace(chr(34), '')}" for name, body in groups]
    (folder / "entry_points.txt").write_text("\n".join(lines))


def run(tree, *command):
    """Run a command in the tree; return its output. It must succeed."""
    done = subprocess.run(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


@pytest.fixture(scope="module", params=ADAPTERS)
def tree(request, tmp_path_factory):
    """A copy of the tree without one adapter."""
    tree = tmp_path_factory.mktemp("without") / "tree"
    tree.mkdir()
    copy_tree(tree)
    remove(tree, request.param)
    install(tree)
    yield tree, request.param
    shutil.rmtree(tree)


def test_the_rest_can_be_imported(tree):
    folder, _ = tree
    run(folder, sys.executable, "-c", IMPORT_ALL)


def test_its_kind_is_unknown_and_the_others_are_there(tree):
    folder, adapter = tree
    code = "from gateway.grids.kinds import kind_names; print(*kind_names())"
    known = set(run(folder, sys.executable, "-c", code).split())
    assert known >= {*ADAPTERS, "local", "processes", "remote"} - {adapter}
    assert adapter not in known
    listed = run(folder, sys.executable, "-m", "gateway", "--help")
    assert ("symphony" in listed) == (adapter != "symphony")


def test_imports_still_run_one_way(tree):
    folder, _ = tree
    run(folder, str(Path(sys.executable).with_name("lint-imports")), "--no-cache")


def test_the_documents_are_true_and_all_other_tests_are_found(tree):
    folder, _ = tree
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")
    run(folder, *pytest_, "tests/test_docs.py", "tests/test_house.py")
    run(folder, *pytest_, "--collect-only", "-m", "not stress")


def test_the_pure_tests_of_what_is_left_pass(tree):
    folder, _ = tree
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")
    run(folder, *pytest_, "-m", "not real and not stress", *AFFECTED)
