"""The refusals of `gridfed init`, and the files that it writes."""

import json
import os
import stat
import tomllib

import pytest
from support.command import quick

from gateway.config.site import load


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--contact", "two\nlines"),
        ("--contact", "x" * 201),
        ("--contact", "\x1b[2J"),
        ("--host", "ex ample"),
        ("--host", 'a"b'),
        ("--host", "a\nb"),
        ("--host", "zürich"),
        ("--host", "-x"),
        ("--host", "a..b"),
        ("--host", "x" * 300),
        ("--host", "[::1]"),
        ("--site", "---"),
        ("--site", "-paris"),
        ("--site", "paris-"),
        ("--federation", "---"),
    ],
)
def test_an_odd_contact_or_host_is_refused_by_name_and_nothing_is_made(tmp_path, option, value):
    folder = tmp_path / "site"
    said = quick("init", "--site", "london", "--config-dir", str(folder), option, value, code=2)
    assert option in said
    assert "Traceback" not in said
    assert not folder.exists()


@pytest.mark.parametrize("host", ["gw.london.example", "gw.london.example.", "10.0.0.1", "::1"])
def test_hosts(tmp_path, host):
    quick("init", "--site", "london", "--config-dir", str(tmp_path), "--host", host)
    load(str(tmp_path / "gateway.toml"))


@pytest.mark.parametrize("name", ["a\nb", "a\x7fb", "a\tb", "\x1b[2J", "a\u202eb"])
def test_a_folder_whose_name_can_not_be_printed_is_refused(tmp_path, name):
    folder = tmp_path / name
    said = quick("init", "--site", "london", "--config-dir", str(folder), code=2)
    assert "--config-dir" in said
    assert not folder.exists()


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a'b", "a{b}c", "größe", "a b", "#"])
def test_a_folder_of_any_name_makes_a_file_that_can_be_read(tmp_path, name):
    folder = tmp_path / name
    quick("init", "--site", "london", "--config-dir", str(folder), "--host", "localhost")
    document = tomllib.loads((folder / "gateway.toml").read_text())
    assert document["site"]["state"] == str(folder / "state")
    assert load(str(folder / "gateway.toml")).trust_path == folder / "federation"


def test_the_configuration_is_for_its_owner_alone(tmp_path):
    quick("init", "--site", "london", "--config-dir", str(tmp_path), "--host", "localhost")
    assert stat.S_IMODE((tmp_path / "gateway.toml").stat().st_mode) == 0o600


def test_a_token_is_revoked_by_its_id_as_well(tmp_path):
    there = ("--config-dir", str(tmp_path))
    quick("init", "--site", "london", *there, "--host", "localhost")
    token = quick("token", "--user", "ada", *there).strip()
    assert token.startswith("gft1_")
    unknown = quick("token", "--revoke", "00112233aabbccdd", *there, code=1)
    assert "no token with the id '00112233aabbccdd' found here" in unknown
    [row] = json.loads(quick("tokens", "list", "--json", *there))["rows"]
    said = quick("token", "--revoke", row["id"], *there)
    assert said.strip() == f"token {row['id']} of ada is revoked"


@pytest.mark.parametrize("user", ["eve@paris", "group:quants", " "])
def test_no_token_is_made_for_who_would_be_taken_for_another(tmp_path, user):
    there = ("--config-dir", str(tmp_path))
    quick("init", "--site", "london", *there, "--host", "localhost")
    assert "gridfed: " in quick("token", "--user", user, *there, code=1)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_folder_is_for_its_owner_alone_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        folder = tmp_path / "on the way" / "site"
        quick("init", "--site", "london", "--config-dir", str(folder), "--host", "localhost")
    finally:
        os.umask(before)
    for each in (folder.parent, folder, folder / "federation"):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
