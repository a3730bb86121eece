"""The environments of jobs: read, checked, wrapped around a function."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.client import Options
from federation.engine.environment_files import read_environment
from federation.errors import ProtocolError
from federation.messages.environments import (
    FILES_BYTES_MAX,
    MARK,
    Environment,
    check,
    check_image,
    requirement_lines,
    unwrap,
    wrap,
)
from federation.messages.wire import pack
from federation.payload import seal_function

GOOD = [
    "numpy",
    "numpy==1.26.4  # why",
    "# nothing\n\nnumpy>=1,<2; python_version < '3.12'",
    "requests[socks,use_chardet]~=2.31",
    "zope.interface (>=5)",
    f"numpy==1.26.4 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\n",
]
BAD = [
    "-r other.txt",
    "-e .",
    "--index-url https://evil.example",
    "numpy\n--extra-index-url https://evil.example",
    "numpy @ https://evil.example/numpy.whl",
    "numpy @ file:///etc/passwd",
    "https://evil.example/numpy.whl",
    "git+https://evil.example/numpy",
    "x.whl",
    "x-1.0-py3-none-any.WHL",
    "x.tar.gz",
    "x.zip [extra]",
    "x.whl[extra] ; python_version > '3'",
    "x==1.0.zip",
    "./numpy.whl",
    "/etc/numpy.whl",
    "..",
    "numpy==1 --config-settings=x=y",
    "numpy==1 \\\n --index-url https://evil.example",
    "numpy==${SECRET}",
    "numpy; python_version == '${PIP_INDEX_URL}'",  # pip would show what it holds
    "numpy==1\u2028--index-url https://evil.example",
    # pip reads options from the first word with a dash, one or two, wherever that stands
    "numpy -e .",
    "a -i x",
    "numpy -c x",
    "numpy -r x",
    "numpy -ihttp",
    "numpy -f links",
    "numpy==1 -e .",
    "numpy[x] -e .",
    "numpy[x, -e]",
    "numpy (>=1 -e .)",
    "numpy\t-e .",
    "numpy \\\n -e .",
    "numpy; python_version > '3' -e .",
    "numpy; python_version > ' -e .'",
    f"numpy==1 --hash=sha256:{'0' * 64} -e .",
    f"numpy==1 -e . --hash=sha256:{'0' * 64}",
]
PROJECT = b'[project]\nname = "p"\nversion = "1"\n[tool.uv]\npackage = false\n'
LOCK = b"""version = 1
[[package]]
name = "p"
source = { virtual = "." }
[[package]]
name = "numpy"
source = { registry = "https://pypi.org/simple" }
"""


@pytest.mark.parametrize("text", GOOD)
def test_packages_and_versions_are_taken(tmp_path, text):
    path = tmp_path / "any-name.txt"
    path.write_text(text)
    found = read_environment(path, "3.11")
    assert found.packages == "requirements"
    assert found.files == (("requirements.txt", text.encode()),)


@pytest.mark.parametrize("text", BAD)
def test_where_packages_are_from_is_not_for_a_job_to_say(tmp_path, text):
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"requirements\.txt: "):
        read_environment(path, "3.11")


def test_a_remark_does_not_say_how_the_rest_is_read():
    """Text that pip would take for UTF-7 holds a line of its own, an option, that no check sees."""
    text = "# -*- coding: utf-7 -*-\nnumpy==1+AAoALQAt-index-url +AGgAdAB0AHAAOgAvAC8-evil\n"
    lines = requirement_lines(text)
    assert lines == ["numpy==1+AAoALQAt-index-url +AGgAdAB0AHAAOgAvAC8-evil"]
    assert requirement_lines("a==1 # x\n\n # y\nb\n") == ["a==1", "b"]


@pytest.mark.parametrize(
    "source", ['{ git = "https://x" }', '{ path = "/etc" }', '{ url = "https://x" }', '"x"']
)
def test_a_lock_is_of_packages_of_an_index(tmp_path, source):
    (tmp_path / "pyproject.toml").write_bytes(PROJECT)
    path = tmp_path / "uv.lock"
    path.write_bytes(LOCK)
    assert read_environment(path, "3.11").packages == "uv"
    path.write_bytes(LOCK + f'[[package]]\nname = "x"\nsource = {source}\n'.encode())
    with pytest.raises(ValueError, match=r"uv\.lock: package 'x'"):
        read_environment(path, "3.11")
    path.write_bytes(LOCK)
    (tmp_path / "pyproject.toml").write_bytes(PROJECT + b"[tool.uv.sources]\n")
    with pytest.raises(ValueError, match=r"pyproject\.toml"):
        read_environment(path, "3.11")


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("localhost/quant:1", True),
        ("quant", True),
        ("docker:24", True),
        (f"registry.example:5000/a/b-c_d:1.0_x@sha256:{'0a' * 32}", True),
        ("registry.example/a@sha256:0a", False),
        ("docker-archive:/etc/secret.tar", False),  # podman reads these as files
        ("dir:secret", False),
        ("oci:a", False),
        ("containers-storage:a", False),
        ("../a", False),
        ("a/../b", False),
        ("a/b:", False),
        ("", False),
        ("-v/:/host", False),
        ("--privileged", False),
        ("a b", False),
        ("a//b", False),
        ("ä", False),
        ("x" * 200, False),
        (7, False),
    ],
)
def test_images_have_names_of_images(name, is_good):
    if is_good:
        check_image(name)
        return
    with pytest.raises(ValueError, match="is not a valid image name: use a form such as"):
        check_image(name)


def test_what_is_no_environment_says_what_would_be(tmp_path):
    with pytest.raises(ValueError, match=r"for a file use Path\('requirements.txt'\)"):
        Options(environment="requirements.txt")
    with pytest.raises(TypeError, match="the name of an image, or the Path"):
        Options(environment=3)
    with pytest.raises(FileNotFoundError):
        Options(environment=tmp_path / "requirements.txt")
    (tmp_path / "requirements.txt").write_bytes(b"#" * (FILES_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="exceed the limit"):
        Options(environment=tmp_path / "requirements.txt")


def test_a_file_is_read_once_and_makes_another_job_when_it_changes(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_text("numpy==1")
    first = Options(environment=path)
    path.write_text("numpy==2")
    second = Options(environment=path)
    assert first.key() != second.key()
    assert first.wishes["environment"] != second.wishes["environment"]
    sealed = [options.seal(len) for options in (first, second, Options())]
    assert len({each.digest for each in sealed}) == 3
    assert all(each.digest == hashlib.sha256(each.body).digest() for each in sealed)
    assert sealed[2] == seal_function(len)


@given(body=st.binary(max_size=200), image=st.sampled_from(["localhost/a:1", ""]))
def test_a_function_comes_out_as_it_went_in(body, image):
    files = () if image else (("requirements.txt", b"numpy"),)
    environment = Environment(image, "" if image else "requirements", files, "3.11")
    assert unwrap(wrap(body, environment)) == (environment, body)
    if not body.startswith(MARK):
        assert unwrap(body) == (None, body)


@pytest.mark.parametrize(
    "plain",
    [
        [],
        ["", "", "3.11", [], b""],
        ["localhost/a", "requirements", "3.11", [], b""],
        ["-x", "", "3.11", [], b""],
        ["", "conda", "3.11", [], b""],
        ["", "requirements", "3.11", [["../x", b""]], b""],
        ["", "requirements", "3.11", [["requirements.txt", b"-e ."]], b""],
        ["", "requirements", "3.11", [["requirements.txt", "text"]], b""],
        ["localhost/a", "", "3" * 17, [], b""],
        {"image": "x"},
        ["", "uv", "3.11", [["pyproject.toml", b"\xff"], ["uv.lock", b""]], b""],
        ["", "uv", "3.11", [["pyproject.toml", b"tool = 'x'"], ["uv.lock", b""]], b""],
        ["", "uv", "3.11", [["pyproject.toml", b"[tool]\nuv = 7"], ["uv.lock", b""]], b""],
        [
            "",
            "uv",
            "3.11",
            [["pyproject.toml", b"tool.uv = ['package']"], ["uv.lock", b""]],
            b"",
        ],
    ],
)
def test_a_worker_takes_no_environment_that_a_client_would_not_make(plain):
    with pytest.raises(ProtocolError):
        unwrap(MARK + pack(plain))


@pytest.mark.parametrize(
    ("packages", "text"),
    [
        ("requirements", "a" + " " * 100_000 + "b@"),
        ("requirements", "a" * 100_000 + "@"),
        ("requirements", "a[" + " " * 100_000 + "@"),
        ("requirements", "a " * 100_000 + "--x"),
        ("uv", ".".join(["a"] * 100_000) + " = 1"),
        ("uv", " . ".join(['"\\""'] * 100_000) + " = 1"),
        ("uv", "x = {" + ".".join(["''"] * 100_000) + " = 1}"),
        ("uv", "a" * 100_000),
        ("uv", '"' * 100_001),
        ("uv", 'a = "' + "\\" * 100_001),
    ],
)
@pytest.mark.timeout(20)  # it took hours: a worker reads them while its heartbeats wait
def test_who_writes_much_into_a_line_holds_up_no_worker(packages, text):
    body = text.encode()
    files = [["requirements.txt", body]]
    if packages == "uv":
        files = [["pyproject.toml", body], ["uv.lock", b""]]
    with pytest.raises(ProtocolError):
        unwrap(MARK + pack(["", packages, "3.11", files, b""]))


@given(st.binary(max_size=300))
def test_nonsense_is_a_protocol_error_and_nothing_else(data):
    try:
        unwrap(MARK + data)
    except ProtocolError:
        return
    pytest.fail("nonsense was taken")


def test_an_environment_is_one_thing():
    with pytest.raises(ValueError, match="not both"):
        check(Environment("localhost/a", "requirements", (("requirements.txt", b""),)))
