"""The register of issued tokens."""

import json
import re

import pytest
from support.pure.site_keys import FEDERATION, NOW_S

from federation.signed.tokens import UserToken
from gateway.trust import token_register
from gateway.trust.book_file import TrustFileError, save_plain
from gateway.trust.keys import KeyFileError
from gateway.trust.token_register import (
    KEPT_S,
    TOKENS_FILE,
    RegisterFull,
    TokenRegister,
    from_plain,
    load,
)


def token(name="a", user="ann", made_s=NOW_S, valid_s=60.0):
    return UserToken(
        federation=FEDERATION,
        issuer="london",
        id=name * 16,
        user=user,
        projects=None,
        scopes=frozenset({"submit"}),
        sites=frozenset({"london"}),
        issued_s=made_s,
        expires_s=made_s + valid_s,
    )


def names(register):
    return [each.id[0] for each in register]


def test_tokens_are_listed_those_made_last_first_until_a_month_after_their_end():
    register = TokenRegister()
    register.add(token("a"), NOW_S)
    register.add(token("b", made_s=NOW_S + 1), NOW_S + 1)
    assert names(register) == ["b", "a"]
    assert [each.state(NOW_S + 60.5) for each in register] == ["valid", "expired"]
    assert register.of_user("ann", NOW_S + 60.5) == [register.find("b" * 16)]
    late_s = NOW_S + 60.5 + KEPT_S
    register.add(token("c", made_s=late_s), late_s)
    assert names(register) == ["c", "b"]


def test_the_last_use_is_noted_once_a_minute_and_when_the_host_changes():
    register = TokenRegister()
    register.add(token("a"), NOW_S)
    before = register.changes
    for host, at_s, changes in (
        ("10.1.2.3", 1, 1),
        ("10.1.2.3", 30, 1),
        ("10.1.2.3", 62, 2),
        ("", 63, 3),
    ):
        register.used("a" * 16, host, NOW_S + at_s)
        assert register.changes - before == changes
    register.used("f" * 16, "", NOW_S)  # of an older version
    assert register.changes - before == 3
    [each] = register
    assert (each.used_at_s, each.used_from) == (NOW_S + 63, "")


def test_a_full_register_drops_what_has_ended_and_then_takes_no_more(monkeypatch):
    monkeypatch.setattr(token_register, "KEPT_MAX", 2)
    register = TokenRegister()
    register.add(token("a", valid_s=10), NOW_S)
    register.add(token("b"), NOW_S)
    register.add(token("c", made_s=NOW_S + 20), NOW_S + 20)
    assert names(register) == ["c", "b"]
    with pytest.raises(RegisterFull, match="let some expire, or revoke"):
        register.add(token("d"), NOW_S + 21)
    register.revoke(["b" * 16], NOW_S + 22)
    register.add(token("d"), NOW_S + 23)
    assert "b" not in names(register)


def test_what_is_revoked_once_stays_as_it_was_revoked():
    register = TokenRegister()
    register.add(token("a"), NOW_S)
    register.revoke(["a" * 16, "f" * 16], NOW_S + 1)
    register.revoke(["a" * 16], NOW_S + 2)
    [each] = register
    assert (each.revoked_at_s, each.state(NOW_S + 3)) == (NOW_S + 1, "revoked")


def test_a_user_who_is_cut_off_comes_in_by_later_tokens():
    register = TokenRegister()
    register.cut_off("ann", NOW_S)
    assert register.is_cut_off(token(made_s=NOW_S))
    assert not register.is_cut_off(token(made_s=NOW_S + 0.001))
    assert not register.is_cut_off(token(user="bob"))


def test_all_of_it_is_there_after_a_restart(tmp_path):
    register = TokenRegister()
    register.add(token("a"), NOW_S)
    register.add(token("b", user="bob"), NOW_S)
    register.revoke(["b" * 16], NOW_S + 1)
    register.used("a" * 16, "10.1.2.3", NOW_S + 2)
    register.cut_off("eve", NOW_S)
    save_plain(tmp_path / TOKENS_FILE, register.to_plain())
    again = load(tmp_path)
    assert list(again) == list(register)
    assert again.is_cut_off(token(user="eve"))


def test_a_register_that_is_not_there_is_empty(tmp_path):
    assert list(load(tmp_path)) == []


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 2}', '{"version": 1, "tokens": {"a": {}}, "cut_off": {}}']
)
def test_a_damaged_file_is_named(tmp_path, text):
    file = tmp_path / TOKENS_FILE
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(TrustFileError, match=re.escape(TOKENS_FILE)):
        load(tmp_path)


def test_a_file_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / TOKENS_FILE
    file.write_text(json.dumps(TokenRegister().to_plain()))
    file.chmod(0o644)
    with pytest.raises(KeyFileError):
        load(tmp_path)


def test_plain_data_of_a_newer_version_is_refused():
    with pytest.raises(ValueError, match="a newer gridfed wrote"):
        from_plain({"version": 9})
