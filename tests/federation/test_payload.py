"""The rules by which functions are pickled, and when anew."""

import functools
import math
import pickle
import subprocess
import sys
import textwrap
import threading
import types

import cloudpickle
import pytest

from federation import payload
from federation.errors import SerializationError
from federation.objects import inputs, references
from federation.objects.open_calls import OpenCall
from federation.payload import (
    Call,
    open_result,
    seal_call,
    seal_calls,
    seal_function,
    seal_singles,
    seal_small,
)

FACTOR = 3
TABLE = [1, 2]


def times(x):
    return FACTOR * x


def look_up(x):
    return TABLE[x]


def test_an_unchanged_function_is_pickled_once():
    assert seal_function(times) is seal_function(times)


def test_a_function_is_pickled_again_when_a_global_is_bound_anew(monkeypatch):
    before = seal_function(times)
    monkeypatch.setitem(globals(), "FACTOR", 4)
    after = seal_function(times)
    assert after.digest != before.digest
    assert pickle.loads(after.body)(2) == 8


def test_a_function_that_uses_something_mutable_is_pickled_every_time():
    before = seal_function(look_up)
    TABLE.append(3)
    try:
        assert pickle.loads(seal_function(look_up).body)(2) == 3
    finally:
        TABLE.pop()
    assert pickle.loads(before.body).__name__ == "look_up"


def test_installed_functions_go_by_reference():
    assert len(seal_function(math.sqrt).body) < 60
    assert len(seal_function(textwrap.dedent).body) < 60


@pytest.mark.parametrize("function", [abs, math.sqrt, textwrap.dedent, textwrap.TextWrapper])
def test_what_goes_by_reference_is_pickled_once_whatever_it_uses(function):
    assert seal_function(function) is seal_function(function)
    cloudpickle.register_pickle_by_value(functools)
    try:
        assert seal_function(function) is seal_function(function), "another module goes by value"
    finally:
        cloudpickle.unregister_pickle_by_value(functools)


def test_an_installed_function_is_pickled_again_when_its_name_leads_elsewhere(monkeypatch):
    dedent = textwrap.dedent
    before = seal_function(dedent)
    monkeypatch.setattr(textwrap, "dedent", textwrap.indent)
    after = seal_function(dedent)  # by value: its name is another function's
    assert after.digest != before.digest
    assert pickle.loads(after.body)("  x") == "x"


def test_an_installed_function_is_pickled_again_when_its_module_goes_by_value():
    before = seal_function(textwrap.shorten)
    cloudpickle.register_pickle_by_value(textwrap)
    try:
        by_value = seal_function(textwrap.shorten)
    finally:
        cloudpickle.unregister_pickle_by_value(textwrap)
    assert len(by_value.body) > 10 * len(before.body)
    assert seal_function(textwrap.shorten).digest == before.digest


def pickled(folder, code):
    """The pickle of the object `found` of `code`; here, where its modules can't be imported."""
    code += "\nimport sys\nfrom federation.payload import seal_function as seal\n"
    code += "sys.stdout.buffer.write(seal(found).body)"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout


@pytest.mark.real
def test_a_local_module_goes_by_value(tmp_path):
    (tmp_path / "mine.py").write_text("import helper\ndef f(x): return helper.g(x) + 1\n")
    (tmp_path / "helper.py").write_text("def g(x): return 10 * x\n")
    assert pickle.loads(pickled(tmp_path, "from mine import f as found"))(4) == 41


@pytest.mark.real
def test_a_local_module_that_was_imported_anew_goes_by_value(tmp_path):
    # Its place in sys.modules is taken by another object, and their number stays what it was.
    (tmp_path / "mine.py").write_text("def f(x): return x + 1\n")
    code = "import sys, mine\nfrom federation.payload import seal_function\nseal_function(mine.f)\n"
    code += "del sys.modules['mine']\nfrom mine import f as found"
    assert pickle.loads(pickled(tmp_path, code))(4) == 5


def test_pickling_by_value_leaves_no_trace_in_cloudpickle():
    import cloudpickle

    before = cloudpickle.list_registry_pickle_by_value()
    seal_function(look_up)
    assert cloudpickle.list_registry_pickle_by_value() == before


@pytest.mark.parametrize("args", [(), (1,), (1, "two", b"3", 4.0, None, True), ([1], {"k": (2,)})])
def test_calls_open_as_they_were(args):
    assert pickle.loads(seal_call(args, {})) == args
    assert [pickle.loads(body) for body in seal_calls([args, args])] == [args, args]


def test_keyword_arguments_make_a_call():
    call = pickle.loads(seal_call((1,), {"base": 2}))
    assert type(call) is Call
    assert (call.args, call.kwargs) == ((1,), {"base": 2})


def test_singles():
    assert [pickle.loads(body) for body in seal_singles([1, 2])] == [(1,), (2,)]
    assert [pickle.loads(body) for body in seal_singles([1, [2]])] == [(1,), ([2],)]


def test_what_cannot_be_pickled_is_named_by_its_path():
    class Holder:
        def __init__(self):
            self.inner = {"lock": threading.Lock()}

    with pytest.raises(SerializationError, match=r"argument 'x'\.inner\['lock'\], a _thread\.lock"):
        seal_call((), {"x": Holder()})


def test_a_function_that_cannot_be_pickled_says_what_it_captured():
    lock = threading.Lock()

    def locked():
        return lock

    with pytest.raises(SerializationError, match="variable 'lock'"):
        seal_function(locked)


def test_a_result_that_cannot_be_opened_is_told():
    with pytest.raises(SerializationError, match="installed"):
        open_result(b"cno_such_module\nname\n.")


def test_names_for_people():
    assert seal_function(times).name == "times"
    assert seal_function(functools.partial(times, 1)).name == "times"
    assert payload.seal_function(str.upper).name == "str.upper"


def test_what_is_not_callable_is_refused():
    with pytest.raises(TypeError, match="not callable"):
        seal_function(5)


def test_a_function_is_pickled_again_when_a_name_it_uses_appears_or_its_parts_change(monkeypatch):
    def add(x, more=1):
        return x + more + LATER  # noqa: F821 - it comes to be

    before = seal_function(add)
    monkeypatch.setitem(globals(), "LATER", 5)
    named = seal_function(add)
    assert named.digest != before.digest
    add.__defaults__ = (2,)
    assert pickle.loads(seal_function(add).body)(1) == 8


def test_a_function_is_pickled_again_when_its_variable_or_an_inner_function_changes():
    def outer():
        count = 1

        def inner():
            return count

        def rebind():
            nonlocal count
            count += 1

        return inner, rebind

    inner, rebind = outer()

    def call():
        return inner()

    before = seal_function(call)
    assert seal_function(call) is before
    rebind()
    assert pickle.loads(seal_function(call).body)() == 2
    inner.__code__ = (lambda: "new").__code__.replace(co_freevars=inner.__code__.co_freevars)
    assert pickle.loads(seal_function(call).body)() == "new"


def test_a_default_that_is_replaced_by_an_equal_one_is_another():
    def own(x=1):
        return x

    before = seal_function(own)
    own.__defaults__ = (True,)
    assert pickle.loads(seal_function(own).body)() is True
    assert pickle.loads(before.body)() == 1


def test_an_attribute_that_is_set_after_the_first_call_travels():
    def own():
        return own.rate

    def other():
        return None

    seal_function(other)
    before = seal_function(other)
    other.rate = 2
    assert seal_function(other).digest != before.digest
    seal_function(own)
    own.rate = 3
    assert pickle.loads(seal_function(own).body).rate == 3


def test_functions_in_turn_keep_their_own_pickles():
    def one():
        return 1

    def two():
        return 2

    kept = [seal_function(one), seal_function(two)]
    assert [seal_function(each) for each in (one, two, two, one)] == [*kept, *kept[::-1]]


def test_a_function_is_pickled_again_when_what_it_uses_is_registered_or_imported():
    def own(text):
        return textwrap.shorten(text, 5)

    before = seal_function(own)
    assert seal_function(own) is before
    cloudpickle.register_pickle_by_value(textwrap)
    try:
        assert seal_function(own) is not before
    finally:
        cloudpickle.unregister_pickle_by_value(textwrap)
    before = seal_function(own)
    sys.modules["a_module_of_this_test"] = types.ModuleType("a_module_of_this_test")
    try:
        assert seal_function(own) is not before
    finally:
        del sys.modules["a_module_of_this_test"]


class PlainInput:
    """Stands for a future."""

    def __init__(self, value=b""):
        self.value = value

    def __reduce__(self):
        return references.reduced_input(self)


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.setattr(payload, "_plain", {*payload._plain})
    payload.add_plain(PlainInput)


@pytest.mark.parametrize("seal", [seal_call, seal_small])
def test_calls_of_futures_and_lists_of_them_are_sealed_as_by_cloudpickle(plain, monkeypatch, seal):
    one, two = PlainInput(), PlainInput()
    args = (one, [two, one, 3], "x")
    quick = seal(args, {})
    monkeypatch.setattr(payload, "_plain", set())
    slow = seal(args, {})
    assert type(quick) is type(slow) is OpenCall
    assert quick.inputs == slow.inputs == (one, two)
    monkeypatch.setattr(inputs, "_source", ["a", "b"].__getitem__)
    assert pickle.loads(quick.pickled) == pickle.loads(slow.pickled) == ("a", ["b", "a", 3], "x")


def test_futures_among_other_arguments_are_still_found(plain):
    one = PlainInput()
    call = seal_call((one, {"a": [one]}), {})
    assert call.inputs == (one,)
    assert seal_calls([(one,), (1,)])[0].inputs == (one,)
