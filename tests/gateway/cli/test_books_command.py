"""`gridfed audit`: whose books it reads."""

from support.command import quick


def test_which_books_are_read_is_said_where_nobody_named_them(tmp_path):
    told = quick("audit", code=1, XDG_STATE_HOME=str(tmp_path), HOME=str(tmp_path))
    assert f"of the usual books, in {tmp_path}" in told
    assert "--config or --state names others" in told
    assert "usual" not in quick("audit", "--state", str(tmp_path), code=1)
