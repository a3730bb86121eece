"""`gridfed audit`: the books that it reads."""

from support.command import quick


def test_which_books_are_read_is_said_where_nobody_named_them(tmp_path):
    told = quick("audit", code=1, XDG_STATE_HOME=str(tmp_path), HOME=str(tmp_path))
    assert f"using the default database in {tmp_path}" in told
    assert "choose another with --config or --state" in told
    assert "usual" not in quick("audit", "--state", str(tmp_path), code=1)
