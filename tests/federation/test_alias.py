"""The package `gridfed`, which the build makes of federation/gridfed."""

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_each_public_name_is_the_same_under_both_names():
    import gridfed

    import federation

    assert sorted(gridfed.__all__) == sorted([*federation.__all__, "__version__"])
    for name in federation.__all__:
        assert getattr(gridfed, name) is getattr(federation, name)
    assert gridfed.__version__ == importlib.metadata.version("gridfed")
    with pytest.raises(AttributeError, match="nothing"):
        _ = gridfed.nothing


@pytest.mark.real
@pytest.mark.slow
def test_the_wheel_has_the_alias(tmp_path):
    code = f"import hatchling.build as b; print(b.build_wheel({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    if "No module named 'hatchling'" in done.stderr:
        pytest.skip("hatchling is not installed here")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        names = wheel.namelist()
    assert {"gridfed/__init__.py", "gridfed/py.typed", "federation/__init__.py"} <= set(names)
