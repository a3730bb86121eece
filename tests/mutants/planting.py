"""Mutants of a module: the changes, and the changed code objects."""

import ast
from collections.abc import Callable, Collection, Iterator
from copy import copy
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

Function = ast.FunctionDef | ast.AsyncFunctionDef

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NEGATIONS: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGS: Final = {"log", "logger", "logging"}
_UNTOUCHED: Final = (ast.Assert, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Pass)


@dataclass(frozen=True)
class Mutant:
    """A module with one small change.

    Attributes:
        file: of the module.
        line: at which the change begins.
        lines: all lines of the change; a test that runs none of them can't notice.
        statement: the line at which the statement begins.
        before, after: the statement, or the condition of a compound one.
        compile: returns the code of the whole module, with the change.
    """

    file: str
    line: int
    lines: range
    statement: int
    before: str
    after: str
    compile: Callable[[], CodeType] = field(repr=False, compare=False)


@dataclass(frozen=True)
class _Slot:
    """The place of a node in a tree."""

    parent: ast.AST
    name: str
    index: int | None = None

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.name, node)
        else:
            getattr(self.parent, self.name)[self.index] = node


def find_mutants(source: str, file: str, lines: Collection[int] | None = None) -> list[Mutant]:
    """All mutants of a module's functions; of those that change one of the lines, if given.

    Code outside of functions stays as it is, since it has run before any test; so do assertions and
    log calls.
    """
    tree = ast.parse(source)
    found: dict[tuple[int, str, str], Mutant] = {}
    for slot, old, new, shown in _changes(tree):
        span = range(old.lineno, (old.end_lineno or old.lineno) + 1)
        if lines is not None and not any(each in lines for each in span):
            continue
        mutant = _mutant(tree, file, span, slot, old, new, shown)
        if mutant.after != mutant.before:
            found.setdefault((mutant.statement, mutant.before, mutant.after), mutant)
    return sorted(found.values(), key=lambda each: (each.line, each.after))


def codes_of(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """All functions that are compiled into a code object, by their name and first line."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield (each.co_qualname, each.co_firstlineno), each
            yield from codes_of(each)


def _mutant(
    tree: ast.Module,
    file: str,
    span: range,
    slot: _Slot,
    old: ast.AST,
    new: ast.AST,
    shown: _Slot,
) -> Mutant:
    ast.copy_location(new, old)
    ast.fix_missing_locations(new)

    def planted(read: Callable[[], Any]) -> Any:
        slot.put(new)
        try:
            return read()
        finally:
            slot.put(old)

    def text() -> str:
        return ast.unparse(_at(shown))

    return Mutant(
        file,
        span.start,
        span,
        _at(shown).lineno,
        text(),
        planted(text),
        lambda: planted(lambda: compile(tree, file, "exec", dont_inherit=True)),
    )


def _at(slot: _Slot) -> Any:
    found = getattr(slot.parent, slot.name)
    return found if slot.index is None else found[slot.index]


_Change = tuple[_Slot, ast.AST, ast.AST, _Slot]


def _changes(tree: ast.AST) -> Iterator[_Change]:
    """Slot, old node, new node, and the slot of the shown node."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            for slot, statement in _statements(node):
                if node.name == "__init__" and _sets_attribute(statement):
                    continue  # whatever reads the attribute fails
                for place, old, new in _of_statement(slot, statement):
                    yield place, old, new, slot
                if isinstance(statement, ast.If | ast.While):
                    test = _Slot(statement, "test")
                    for place, old, new in _negated(test, statement.test):
                        yield place, old, new, test
                for shown, expression in _expressions(slot, statement):
                    for place, old, new in _of_expression(shown, expression):
                        yield place, old, new, shown


def _statements(node: ast.AST) -> Iterator[tuple[_Slot, ast.stmt]]:
    """The statements of a function, without those of functions and classes in it."""
    for name, value in ast.iter_fields(node):
        for index, each in enumerate(value if isinstance(value, list) else []):
            if isinstance(each, ast.stmt) and not isinstance(each, _UNTOUCHED):
                if not (_is_logged(each) or isinstance(each, Function | ast.ClassDef)):
                    yield _Slot(node, name, index), each
                    yield from _statements(each)
            elif isinstance(each, ast.ExceptHandler | ast.match_case):
                yield from _statements(each)


def _expressions(slot: _Slot, statement: ast.stmt) -> Iterator[tuple[_Slot, ast.expr]]:
    """The expressions of a statement, with the slot that shows them."""
    is_compound = hasattr(statement, "body")
    for name, value in ast.iter_fields(statement):
        if name in {"annotation", "targets", "target"}:
            continue
        for index, each in enumerate(value if isinstance(value, list) else [value]):
            own = _Slot(statement, name, index if isinstance(value, list) else None)
            if isinstance(each, ast.expr):
                yield own if is_compound else slot, each
            elif isinstance(each, ast.withitem):
                yield _Slot(each, "context_expr"), each.context_expr
            elif isinstance(each, ast.match_case) and each.guard is not None:
                yield _Slot(each, "guard"), each.guard


def _of_statement(slot: _Slot, node: ast.stmt) -> Iterator[tuple[_Slot, ast.AST, ast.AST]]:
    if _can_go(node):
        yield slot, node, ast.Pass()
    match node:
        case ast.AugAssign(op=ast.Add()):
            yield slot, node, ast.AugAssign(node.target, ast.Sub(), node.value)
        case ast.AugAssign(op=ast.Sub()):
            yield slot, node, ast.AugAssign(node.target, ast.Add(), node.value)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield slot, node, ast.Return(ast.Constant(None))
        case ast.Continue():
            yield slot, node, ast.Break()
        case ast.Break():
            yield slot, node, ast.Continue()


def _sets_attribute(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=[ast.Attribute()]) | ast.AnnAssign(target=ast.Attribute()):
            return True
    return False


def _can_go(node: ast.stmt) -> bool:
    """Whether the module still makes sense, to a compiler, without this statement."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise():
            return True
        case ast.Return(value=None):
            return True
        case ast.Assign(targets=[ast.Subscript()]) | ast.AugAssign():
            return True
    return _sets_attribute(node)


def _of_expression(shown: _Slot, root: ast.expr) -> Iterator[tuple[_Slot, ast.AST, ast.AST]]:
    slots = {id(root): _slot_of(shown, root)}
    for parent in _walk(root):
        for name, value in ast.iter_fields(parent):
            for index, each in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(each, ast.AST):
                    slots[id(each)] = _Slot(parent, name, index if value is not each else None)
        if isinstance(parent, ast.expr):
            yield from _of_node(slots[id(parent)], parent)


def _walk(root: ast.AST) -> Iterator[ast.AST]:
    """Parents before children, without formatted text."""
    if not isinstance(root, ast.JoinedStr):
        yield root
        for each in ast.iter_child_nodes(root):
            yield from _walk(each)


def _slot_of(shown: _Slot, root: ast.expr) -> _Slot:
    whole = _at(shown)
    if whole is root:
        return shown
    for name, value in ast.iter_fields(whole):
        for index, each in enumerate(value if isinstance(value, list) else [value]):
            if each is root:
                return _Slot(whole, name, index if value is not each else None)
    raise LookupError(ast.dump(root))


def _of_node(slot: _Slot, node: ast.expr) -> Iterator[tuple[_Slot, ast.AST, ast.AST]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            yield slot, node, ast.Compare(left, [_COMPARISONS[type(op)]()], [right])
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield slot, node, ast.BoolOp(other, values)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            other = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
            yield slot, node, ast.BinOp(left, other, right)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield slot, node, copy(operand)  # it gets the place of the whole
        case ast.Constant(value=bool() as value):
            yield slot, node, ast.Constant(not value)
        case ast.IfExp(test=test):
            yield from _negated(_Slot(node, "test"), test)
        case ast.Call(func=ast.Name(id=name)) if name in _NAMES:
            yield _Slot(node, "func"), node.func, ast.Name(_NAMES[name], ast.Load())
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            for loop in node.generators:
                for index, condition in enumerate(loop.ifs):
                    yield _Slot(loop, "ifs", index), condition, ast.Constant(True)
                    yield from _negated(_Slot(loop, "ifs", index), condition)


def _negated(slot: _Slot, test: ast.expr) -> Iterator[tuple[_Slot, ast.AST, ast.AST]]:
    match test:
        case ast.UnaryOp(op=ast.Not()) | ast.Constant():
            return  # it is turned around already
        case ast.Compare(ops=[op]) if isinstance(op, _NEGATIONS):
            return
    yield slot, test, ast.UnaryOp(ast.Not(), test)


def _is_logged(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=logger))):
            return ast.unparse(logger).rpartition(".")[2].strip("_").lower() in _LOGS
    return False
