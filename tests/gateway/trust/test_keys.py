"""Key files: whole or not there, for their owner alone; boots rise; rotation is one rename."""

import os
import subprocess
import sys

import pytest
from support.pure.site_keys import NOW_S, card, leaf

from gateway.config.federation import OVERLAP_S
from gateway.trust import keys
from gateway.trust.certificates import OwnLeaf
from gateway.trust.keys import (
    RETIRED_MAX,
    Generation,
    KeyFileError,
    KeyRing,
    Rotation,
    add_next,
    create_keys,
    dialler_tls,
    drop_retired,
    hold,
    load_keys,
    make_generation,
    next_boot,
    promote_next,
    read_private,
    rotation,
    switch,
    switched_at_s,
    write_leaf,
    write_pins,
    write_private,
)

ONE = Generation(b"1" * 32, leaf("london", 1))
TWO = Generation(b"2" * 32, leaf("london", 2))


def mode(path):
    return path.stat().st_mode & 0o7777


def test_a_private_file_is_its_owners(tmp_path):
    path = tmp_path / "folder" / "file"
    write_private(path, b"content")
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert read_private(path) == b"content"
    write_private(path, b"other")
    assert read_private(path) == b"other"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("wrong", [0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_can_read_is_refused(tmp_path, wrong):
    path = tmp_path / "file"
    write_private(path, b"content")
    path.chmod(wrong)
    with pytest.raises(KeyFileError, match=f"chmod 600 {path}"):
        read_private(path)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for wrong, why in (("", "irectory"), ("nothing", "No such file"), ("pipe", "regular file")):
        with pytest.raises(KeyFileError, match=why):
            read_private(tmp_path / wrong)


def test_a_file_that_is_too_large_is_refused(tmp_path):
    write_private(tmp_path / "file", bytes(11))
    with pytest.raises(KeyFileError, match="over 10 bytes"):
        read_private(tmp_path / "file", 10)


def test_what_a_crash_left_behind_is_written_over(tmp_path):
    left = tmp_path / ".file.new"
    left.write_bytes(b"half")
    left.chmod(0o644)
    write_private(tmp_path / "file", b"whole")
    assert mode(tmp_path / "file") == 0o600
    assert read_private(tmp_path / "file") == b"whole"


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path):
    (tmp_path / ".file.new").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        write_private(tmp_path / "file", b"content")
    assert not (tmp_path / "elsewhere").exists()


def test_keys_come_back_as_they_were(tmp_path):
    create_keys(tmp_path, ONE)
    assert load_keys(tmp_path) == KeyRing(ONE)
    assert mode(tmp_path / "current.pem") == 0o600
    with pytest.raises(KeyFileError, match="keys of a site already"):
        create_keys(tmp_path, TWO)


def test_fresh_keys_are_fresh():
    one, other = (make_generation("london", [], NOW_S) for _ in range(2))
    assert one.seed != other.seed
    assert one.leaf != other.leaf


def test_secrets_are_not_shown():
    shown = repr(KeyRing(ONE, TWO))
    assert "1111" not in shown
    assert "PRIVATE" not in shown


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda text: b"", "must contain"),
        (lambda text: text[:200], "must contain"),
        (lambda text: text + text, "must contain"),
        (lambda text: text.replace(b"MC4CAQ", b"MC4CAA"), "can't be read"),
        (lambda text: leaf("london", 1).key + text[text.index(b"-----END") + 25 :], "Ed25519"),
    ],
)
def test_spoilt_keys_are_told(tmp_path, spoil, why):
    create_keys(tmp_path, ONE)
    path = tmp_path / "current.pem"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(KeyFileError, match=why):
        load_keys(tmp_path)


def test_a_leaf_and_a_key_that_do_not_belong_together_are_refused(tmp_path):
    mixed = OwnLeaf(leaf("london", 1).certificate, leaf("london", 2).key)
    create_keys(tmp_path, Generation(b"1" * 32, mixed))
    with pytest.raises(KeyFileError, match="does not match the certificate"):
        load_keys(tmp_path)


def test_keys_that_others_can_read_are_refused(tmp_path):
    create_keys(tmp_path, ONE)
    (tmp_path / "current.pem").chmod(0o644)
    with pytest.raises(KeyFileError, match="is readable by other users"):
        load_keys(tmp_path)


# --- rotation ------------------------------------------------------------------------------------


def test_a_rotation_on_disk(tmp_path):
    create_keys(tmp_path, ONE)
    add_next(tmp_path, TWO)
    assert load_keys(tmp_path) == KeyRing(ONE, TWO)
    with pytest.raises(KeyFileError, match="in progress"):
        add_next(tmp_path, TWO)
    promote_next(tmp_path)
    assert load_keys(tmp_path) == KeyRing(TWO, None, (ONE,))
    with pytest.raises(KeyFileError, match=r"next\.pem"):
        promote_next(tmp_path)


def test_the_stages_of_a_rotation():
    alone, both = card("london").content, card("london", ["london", "london-2"]).content
    ring = KeyRing(ONE, TWO)
    assert rotation(alone, None, NOW_S + 1e9) is Rotation.NONE
    assert rotation(alone, NOW_S, NOW_S + 1e9) is Rotation.NONE
    stages = [
        (None, Rotation.SPREADING, ONE),
        (0, Rotation.SWITCHED, TWO),
        (OVERLAP_S - 1, Rotation.SWITCHED, TWO),
        (OVERLAP_S, Rotation.DUE, TWO),
    ]
    for since_s, stage, active in stages:
        switched_at_s = None if since_s is None else NOW_S + 1e9 - since_s
        assert rotation(both, switched_at_s, NOW_S + 1e9) is stage
        assert ring.active(stage) is active
    assert KeyRing(ONE).active(Rotation.NONE) is ONE
    assert ring.generations == (ONE, TWO)


def test_when_the_next_keys_were_switched_to_is_on_disk_until_they_are_the_current_ones(tmp_path):
    create_keys(tmp_path, ONE)
    add_next(tmp_path, TWO)
    assert switched_at_s(tmp_path) is None
    switch(tmp_path, NOW_S)
    assert switched_at_s(tmp_path) == NOW_S
    promote_next(tmp_path)
    assert switched_at_s(tmp_path) is None
    add_next(tmp_path, ONE)
    assert switched_at_s(tmp_path) is None


def test_old_keys_are_kept_for_who_knows_no_others_and_not_too_many(tmp_path):
    create_keys(tmp_path, ONE)
    made = [ONE]
    for _ in range(RETIRED_MAX + 2):
        made.append(make_generation("london", [], NOW_S))
        add_next(tmp_path, made[-1])
        promote_next(tmp_path)
    assert load_keys(tmp_path).retired == tuple(reversed(made[-1 - RETIRED_MAX : -1]))
    drop_retired(tmp_path)
    assert load_keys(tmp_path) == KeyRing(made[-1])


def test_a_crash_between_keeping_the_old_keys_and_taking_the_next_is_made_good(tmp_path):
    create_keys(tmp_path, ONE)
    add_next(tmp_path, TWO)
    keys._retire(tmp_path)
    assert load_keys(tmp_path) == KeyRing(ONE, TWO)
    promote_next(tmp_path)
    assert load_keys(tmp_path) == KeyRing(TWO, None, (ONE,))


def test_compromised_keys_are_gone(tmp_path):
    create_keys(tmp_path, ONE)
    for following in (TWO, make_generation("london", [], NOW_S)):
        add_next(tmp_path, following)
        promote_next(tmp_path, retire=following is TWO)
    assert load_keys(tmp_path).retired == ()


def test_a_member_is_dialled_with_the_keys_that_it_knows():
    three = make_generation("london", [], NOW_S)
    ring = KeyRing(three, None, (TWO, ONE))
    stage = Rotation.NONE
    assert ring.for_member(stage, {three.key.public}) == (three,)
    assert ring.for_member(stage, {ONE.key.public}) == (ONE, three)
    assert ring.for_member(stage, {ONE.key.public, TWO.key.public}) == (TWO, ONE, three)
    assert ring.for_member(stage, ()) == (three, TWO, ONE)
    rotating = KeyRing(ONE, TWO)
    assert rotating.for_member(Rotation.SPREADING, {ONE.key.public}) == (ONE,)
    assert rotating.for_member(Rotation.SWITCHED, {ONE.key.public, TWO.key.public}) == (TWO,)
    assert rotating.for_member(Rotation.SWITCHED, {ONE.key.public}) == (ONE, TWO)


# --- boots ---------------------------------------------------------------------------------------


def test_boots_rise_whatever_the_clock_does(tmp_path):
    first = next_boot(tmp_path, NOW_S)
    assert first == int(NOW_S)
    assert next_boot(tmp_path, NOW_S) == first + 1
    assert next_boot(tmp_path, NOW_S - 1e6) == first + 2
    assert next_boot(tmp_path, NOW_S, seen=first + 10) == first + 11
    assert next_boot(tmp_path, NOW_S + 1e6) == int(NOW_S + 1e6)


def test_a_boot_that_is_no_number_is_not_guessed(tmp_path):
    write_private(tmp_path / "boot", b"soon\n")
    with pytest.raises(KeyFileError, match="not hold a number"):
        next_boot(tmp_path, NOW_S)


# --- what nng reads ------------------------------------------------------------------------------


def test_pins_are_one_file_for_all_and_one_for_each(tmp_path):
    london, paris = leaf("london").certificate, leaf("paris").certificate
    everybody = write_pins(tmp_path, {"london": (london,), "paris": (paris, london)})
    assert everybody.read_text().count("BEGIN CERTIFICATE") == 3
    assert (tmp_path / "pins" / "paris.pem").read_text().count("BEGIN CERTIFICATE") == 2
    write_pins(tmp_path, {"london": (london,)})
    assert [each.name for each in (tmp_path / "pins").iterdir()] == ["london.pem"]
    assert everybody.read_text().count("BEGIN CERTIFICATE") == 1


def test_who_dials_believes_one_site_and_asks_for_its_name(tmp_path):
    write_leaf(tmp_path, ONE)
    tls = dialler_tls(tmp_path, "paris")
    assert (tls.certificate_file, tls.server_name) == (str(tmp_path / "leaf.pem"), "paris")
    assert tls.ca_file == str(tmp_path / "pins" / "paris.pem")
    assert mode(tmp_path / "leaf.pem") == 0o600


# --- one process at a time -----------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from gateway.trust.keys import KeyFileError, hold
try:
    with hold(Path(sys.argv[1])):
        print("held")
except KeyFileError as error:
    print(error)
"""


def other_process(folder):
    arguments = [sys.executable, "-c", HOLD, str(folder)]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


@pytest.mark.real
def test_a_folder_is_held_by_one_process(tmp_path):
    with hold(tmp_path):
        assert "in use by another process" in other_process(tmp_path)
    assert other_process(tmp_path) == "held\n"
