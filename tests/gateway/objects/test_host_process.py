"""Where the next run of a gateway finds the object host of a lost one."""

import pytest

from gateway.objects.host_process import HostPlace, read_place


def test_the_place_of_a_host_is_saved_for_its_user_alone(tmp_path):
    place, path = HostPlace.make(), tmp_path / "state" / "objects.json"
    place.save(path)
    HostPlace.make().save(path)
    place.save(path)
    assert read_place(path) == place
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert place.key.hex() not in place.address


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"address": "@x", "key": "no"}', "\0"])
def test_a_broken_file_is_as_none(tmp_path, text):
    path = tmp_path / "objects.json"
    assert read_place(path) is None
    path.write_text(text)
    assert read_place(path) is None
