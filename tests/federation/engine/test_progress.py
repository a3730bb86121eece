"""The bar, and prints beside it."""

import gc
import io
import sys
import types

from federation.engine import progress


class Terminal(io.StringIO):
    """Something that says it is one."""

    def isatty(self):
        return True


def terminal(monkeypatch):
    """Both outputs as one terminal. Not a fixture: pytest sets its own outputs after those."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_what_a_task_prints_gets_a_line_of_its_own_above_the_bar(monkeypatch):
    shown = terminal(monkeypatch)
    bar = progress.bar(10, "f")
    progress.show("hello\n")
    bar.close()
    before, after = shown.getvalue().split("hello")
    assert before.rpartition("\r")[2] == ""  # the bar was wiped away
    assert after.startswith("\n")


def test_without_a_bar_what_a_task_prints_is_written_as_it_is(monkeypatch):
    shown = terminal(monkeypatch)
    gc.collect()  # bars of other tests
    progress.show("no newline")
    assert shown.getvalue() == "no newline"


def test_a_bar_that_goes_to_a_file_is_seldom_written(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    bar = progress.bar(100, "f")
    assert bar.mininterval == progress.LOG_INTERVAL_S
    bar.close()


def test_a_notebook_without_widgets_gets_the_bar_in_text(monkeypatch):
    terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda _name: None)
    bar = progress.bar(10, "f")
    assert not hasattr(bar, "container")
    bar.close()
