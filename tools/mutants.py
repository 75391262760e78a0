"""Mutation testing of the permission gate and of the code that changes files.

    python tools/mutants.py [MODULE ...] [--sample N --seed S] [--survivors] [--jobs N]
    python tools/mutants.py --check

A mutant is a module with one small fault: another operator or constant, a negated condition, a removed statement. A
test that fails kills it. A mutant that survives shows a rule that no test states, or behaves like the original; the
latter are explained in `tools/mutants-explained.toml`. Exits with 1 if a survivor is not explained, if more than 5 %
survive, or if an explanation matches no mutant.

One process imports the tests and records which lines each of them executes. For every mutant it forks a child, which
replaces the code of one function and runs the tests that execute the line, until one fails. A mutant outside of
functions needs its module to be imported again. Results are stored in `.mutants/`, so that an interrupted run
continues; mutants that survived are tested again, and all mutants of a module that changed.

Messages are not mutated: string literals that contain spaces, and f-strings that do. mutmut 3 forks as well but leaves
everything outside of functions alone, such as the tables of protected names and the flags of `open`.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import builtins
import functools
import hashlib
import importlib
import importlib.abc
import importlib.util
import inspect
import itertools
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
RESULTS = Path(os.environ.get("MUTANTS_RESULTS", ROOT / ".mutants"))
EXPLAINED = ROOT / "tools" / "mutants-explained.toml"

MODULES = (
    *(
        f"reyn.permissions.{name}"
        for name in ("gate", "grants", "hosts", "owners", "paths", "rules", "policy", "targets", "trust")
    ),
    *(f"reyn.workspace.{name}" for name in ("changes", "paths", "files", "restore")),
    *(f"reyn.folders.{name}" for name in ("opening", "writing", "removing")),
)
TESTS = (
    "tests/permissions",
    "tests/workspace",
    "tests/folders",
    "tests/ops",
    "tests/kernel/test_failed_changes.py",
    "tests/kernel/test_rollback.py",
    "tests/runtime/test_archives.py",
    "tests/cli/test_permissions.py",
    "tests/cli/test_planted_links.py",
    "tests/cli/test_trust.py",
)
LEFT_OUT = ("tests/ops/test_containment.py", "tests/ops/test_outside_op.py")
"""Slow tests of the same rules; most of what they do happens in other processes."""
MAX_SURVIVORS = 0.05

_CPU_SECONDS = 20
_WALL_SECONDS = 120
"""A mutant that loops or blocks is killed by these; all its tests take a few seconds of CPU time."""
_MEMORY_BYTES = 6 << 30

# -- mutants --------------------------------------------------------------------------------------------------

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_CALLS = {
    "any": "all", "all": "any", "min": "max", "max": "min", "startswith": "endswith", "endswith": "startswith",
    "lstrip": "strip", "rstrip": "strip", "reversed": "tuple", "sorted": "list",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        module: The name of the module.
        function: The qualified name of the outermost function that contains it; empty outside of functions.
        number: The line where the fault is.
        line: The text of that line.
        becomes: The text of the line with the fault.
        occurrence: Tells mutants with the same texts apart, in the order of their position.
        start: The bytes that are replaced.
        end: Where they end.
        text: What replaces them.
        names: The variables that a statement outside of functions assigns.
    """

    module: str
    function: str
    number: int
    line: str
    becomes: str
    occurrence: int
    start: int
    end: int
    text: bytes
    names: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        parts = (self.module, self.function, self.line, self.becomes, str(self.occurrence))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def place(self) -> str:
        return f"{path_of(self.module).relative_to(ROOT)}:{self.number}"

    def source(self) -> bytes:
        original = path_of(self.module).read_bytes()
        return original[: self.start] + self.text + original[self.end :]


def path_of(module: str) -> Path:
    return SOURCE.joinpath(*module.split(".")).with_suffix(".py")


@functools.cache
def mutants_of(module: str) -> list[Mutant]:
    """Return every mutant of a module, in the order of their position."""
    content = path_of(module).read_bytes()
    starts = [0]
    for row in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    tree = ast.parse(content)
    originals: dict[tuple[int, int], tuple[Any, ...] | None] = {}
    found: dict[tuple[int, int, bytes], Mutant] = {}
    counted: Counter[tuple[str, str, str]] = Counter()
    for edit in sorted(_Finder().edits(tree), key=lambda edit: (edit.begins, edit.ends, edit.text)):
        start = starts[edit.begins[0] - 1] + edit.begins[1]
        end = starts[edit.ends[0] - 1] + edit.ends[1]
        text = edit.text.encode()
        if content[start:end] == text or (start, end, text) in found:
            continue
        mutated = content[:start] + text + content[end:]
        first, last = starts[edit.rows[0] - 1], starts[edit.rows[1]]
        if (first, last) not in originals:
            originals[first, last] = _meaning(content[first:last])
        if _meaning(content[first:start] + text + content[end:last]) in (None, originals[first, last]):
            continue
        number = edit.begins[0]
        line, becomes = _line(content, number), _line(mutated, number)
        if line == becomes:  # the fault is further down
            first = next(index for index, byte in enumerate(text) if content[start + index] != byte)
            number += content[start : start + first].count(b"\n")
            line, becomes = _line(content, number), _line(mutated, number)
        counted[edit.function, line, becomes] += 1
        occurrence = counted[edit.function, line, becomes]
        found[start, end, text] = Mutant(
            module, edit.function, number, line, becomes, occurrence, start, end, text, edit.names
        )
    return list(found.values())


def _line(content: bytes, number: int) -> str:
    return content.splitlines()[number - 1].decode().strip()


def _meaning(statement: bytes) -> tuple[Any, ...] | None:
    """Return what a statement of a module does, or `None` if it is invalid."""
    try:
        return _code(compile(statement, "mutant", "exec", flags=__future__.annotations.compiler_flag))
    except SyntaxError:
        return None


def _code(code: CodeType) -> tuple[Any, ...]:
    """Return what a code object does, without the positions in its source."""
    constants = tuple(_code(one) if isinstance(one, CodeType) else (type(one), one) for one in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, code.co_exceptiontable, constants


@dataclass(frozen=True)
class _Edit:
    begins: tuple[int, int]
    ends: tuple[int, int]
    text: str
    function: str
    names: tuple[str, ...]
    rows: tuple[int, int]
    """The first and the last line of the statement of the module that contains it."""


class _Finder:
    """Finds the places of a module that can be mutated."""

    def __init__(self) -> None:
        self._function = ""
        self._names: tuple[str, ...] = ()
        self._rows = (1, 1)
        self._found: list[_Edit] = []

    def edits(self, tree: ast.Module) -> list[_Edit]:
        for statement in tree.body:
            self._names = tuple(_assigned(statement))
            decorators = getattr(statement, "decorator_list", ())
            assert statement.end_lineno is not None
            self._rows = (min(one.lineno for one in (statement, *decorators)), statement.end_lineno)
            self._statement(statement, ())
        return self._found

    def _add(self, node: ast.AST, replacement: ast.AST | str) -> None:
        text = replacement if isinstance(replacement, str) else ast.unparse(replacement)
        if isinstance(node, ast.expr) and not isinstance(replacement, (str, ast.Constant, ast.Name, ast.Tuple)):
            text = f"({text})"
        assert isinstance(node, (ast.stmt, ast.expr))
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        self._found.append(
            _Edit(
                (node.lineno, node.col_offset),
                (node.end_lineno, node.end_col_offset),
                text,
                self._function,
                self._names,
                self._rows,
            )
        )

    # -- statements -----------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt, scope: tuple[str, ...]) -> None:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Pass():
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.Expr(value=ast.Constant()):
                return  # a docstring
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._definition(node, scope)
            case ast.ClassDef():
                for keyword in node.keywords:
                    self._expression(keyword.value)
                for statement in node.body:
                    self._statement(statement, (*scope, node.name))
            case ast.AnnAssign():
                if node.value is not None:
                    self._expression(node.value)
            case ast.Assign() if not self._function and _is_type(node.value):
                return
            case _:
                self._removal(node)
                self._parts(node, scope)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: tuple[str, ...]) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self._expression(default)
        outer = self._function
        self._function = outer or ".".join((*scope, node.name))
        for statement in node.body:
            self._statement(statement, scope)
        self._function = outer

    def _removal(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
                self._add(node, "pass")
            case ast.Expr() | ast.Raise() | ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break():
                self._add(node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if self._function:
                self._add(node, "pass")
            case ast.Return(value=ast.Constant(value=bool())):
                pass  # the other value is a mutant already
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                self._add(value, "None")
            case ast.Return() if self._function:
                self._add(node, "pass")
            case _:
                pass

    def _parts(self, node: ast.AST, scope: tuple[str, ...]) -> None:
        if isinstance(node, (ast.If, ast.While)):
            self._condition(node.test)
        if isinstance(node, ast.Raise):
            return  # the text of an error
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.stmt():
                    self._statement(child, scope)
                case ast.expr():
                    self._expression(child)
                case _:
                    self._parts(child, scope)

    # -- expressions ----------------------------------------------------------------------------------

    def _condition(self, node: ast.expr) -> None:
        """Negate a condition, unless another mutation does it already."""
        is_negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        if not is_negated and not (isinstance(node, ast.Compare) and len(node.ops) == 1):
            self._add(node, ast.UnaryOp(ast.Not(), node))

    def _expression(self, node: ast.expr) -> None:
        match node:
            case ast.JoinedStr():
                literals = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
                if " " not in literals:
                    self._add(node, repr("mutant"))
                return  # the positions of what is in it are not reliable
            case ast.Constant():
                self._constant(node)
            case ast.Compare():
                for index, operator in enumerate(node.ops):
                    operators = [*node.ops]
                    operators[index] = _COMPARISONS[type(operator)]()
                    self._add(node, ast.Compare(node.left, operators, node.comparators))
            case ast.BoolOp():
                other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
                self._add(node, ast.BoolOp(other, node.values))
                for index in range(len(node.values)):
                    rest = node.values[:index] + node.values[index + 1 :]
                    self._add(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
            case ast.UnaryOp(op=ast.Not()):
                self._add(node, node.operand)
            case ast.BinOp(op=ast.BitOr()) if not _is_type(node):
                self._add(node, node.left)
                if not (isinstance(node.left, ast.Attribute) and node.left.attr == "O_RDONLY"):  # it is 0
                    self._add(node, node.right)
            case ast.BinOp() if type(node.op) in _OPERATORS:
                self._add(node, ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right))
            case ast.IfExp():
                self._condition(node.test)
            case ast.Tuple(ctx=ast.Load()) | ast.List(ctx=ast.Load()) | ast.Set():
                self._collection(node)
                return
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _CALLS:
                self._add(node.func, _CALLS[name])
            case ast.Call(func=ast.Attribute(attr=name) as function) if name in _CALLS:
                self._add(function, ast.Attribute(function.value, _CALLS[name], ast.Load()))
            case ast.Subscript() if _is_type(node):
                return
            case _:
                pass
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.expr():
                    self._expression(child)
                case ast.comprehension():
                    self._expression(child.iter)
                    for condition in child.ifs:
                        self._add(condition, "True")
                        self._expression(condition)
                case ast.keyword():
                    self._expression(child.value)
                case _:
                    pass

    def _constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool():
                self._add(node, str(not node.value))
            case int():
                self._add(node, str(node.value + 1))
            case str() if " " not in node.value:
                self._add(node, repr("" if node.value else "mutant"))
            case bytes():
                self._add(node, repr(b"" if node.value else b"mutant"))
            case _:
                pass

    def _collection(self, node: ast.Tuple | ast.List | ast.Set) -> None:
        """Leave out an element, if all are of one kind: members of a table, not the fields of a value."""
        is_table = all(isinstance(one, (ast.Constant, ast.Attribute, ast.Name)) for one in node.elts)
        if is_table and len(node.elts) > 1 and not any(_is_message(one) for one in node.elts):
            for index in range(len(node.elts)):
                element = node.elts[index]
                rest = node.elts[:index] + node.elts[index + 1 :]
                if len(node.elts) > 8:  # a table: the line of the element is the one to show
                    assert isinstance(element, ast.Constant)
                    self._add(element, repr("mutant"))
                else:
                    shorter = ast.Set(rest) if isinstance(node, ast.Set) else type(node)(rest, ast.Load())
                    self._add(node, f"({ast.unparse(shorter)})")
            return
        for element in node.elts:
            self._expression(element)


def _assigned(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ClassDef):
        yield statement.name
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_message(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value


def _is_type(node: ast.expr) -> bool:
    """Whether an expression is an annotation or an alias of a type."""
    match node:
        case ast.Constant(value=None):
            return True
        case ast.Name(id=name):
            return (name[0].isupper() and not name.isupper()) or isinstance(getattr(builtins, name, None), type)
        case ast.Subscript(value=ast.Name(id=name)):
            return name in ("Literal", "tuple", "dict", "list", "frozenset", "Callable")
        case ast.BinOp(op=ast.BitOr()):
            return _is_type(node.left) and _is_type(node.right)
        case _:
            return False


# -- explanations ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Explanation:
    """Why a mutant may survive. Without `becomes`, every mutant of the line; without `function`, in every function."""

    module: str
    line: str
    reason: str
    becomes: str = ""
    function: str = ""

    def covers(self, mutant: Mutant) -> bool:
        return (
            (mutant.module, mutant.line) == (self.module, self.line)
            and self.becomes in ("", mutant.becomes)
            and self.function in ("", mutant.function)
        )


def explanations() -> list[Explanation]:
    if not EXPLAINED.exists():
        return []
    entries = tomllib.loads(EXPLAINED.read_text()).get("mutant", [])
    return [Explanation(**entry) for entry in entries]


def stale_explanations() -> list[Explanation]:
    """Return the explanations that match no mutant."""
    every = [mutant for module in MODULES for mutant in mutants_of(module)]
    return [one for one in explanations() if not any(one.covers(mutant) for mutant in every)]


# -- coverage -------------------------------------------------------------------------------------------------


@dataclass
class Coverage:
    """The lines of the measured modules that each test executes, and the CPU time that it takes."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """By test, then by module. A test that brings its own trace function counts as executing every line."""
    opaque: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """The hash of each test file when its tests were recorded."""

    def keep(self, files: Iterable[str]) -> None:
        """Forget the tests of all other files."""
        self.files = {file: self.files[file] for file in files}
        self.seconds = {test: seconds for test, seconds in self.seconds.items() if _file_of(test) in self.files}
        self.lines = {test: lines for test, lines in self.lines.items() if test in self.seconds}
        self.opaque = [test for test in self.opaque if test in self.seconds]

    def tests_of(self, module: str, numbers: Iterable[int] | None) -> list[str]:
        """Return the tests that execute one of some lines, or any line of a module, in the order to try them."""
        wanted = None if numbers is None else set(numbers)
        found = [
            test
            for test, modules in self.lines.items()
            if module in modules and (wanted is None or not wanted.isdisjoint(modules[module]))
        ]
        return self._ordered(module, found)

    def tests_near(self, module: str) -> list[str]:
        """Return the tests in the files that have a test of a module, in the order to try them."""
        files = {_file_of(test) for test in self.tests_of(module, None)}
        return self._ordered(module, [test for test in self.lines if _file_of(test) in files])

    def _ordered(self, module: str, tests: list[str]) -> list[str]:
        """Sort tests: those named after the module, then those of its package, the fast ones first."""
        _, package, name = module.split(".")

        def rank(test: str) -> tuple[bool, bool, float]:
            folder, _, file = _file_of(test).rpartition("/")
            return file != f"test_{name}.py", folder != f"tests/{package}", self.seconds[test]

        return sorted(tests, key=rank)


class _Tracer:
    def __init__(self) -> None:
        self._modules = {str(path_of(module)): module for module in MODULES}
        self.lines: dict[str, set[int]] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        module = self._modules.get(frame.f_code.co_filename)
        if module is None:
            return None
        numbers = self.lines.setdefault(module, set())

        def local(frame: FrameType, event: str, argument: object) -> Any:
            numbers.add(frame.f_lineno)
            return local

        return local


# -- execution ------------------------------------------------------------------------------------------------


class Runner:
    """A pytest plugin that replaces the loop over the tests by a loop over the mutants."""

    def __init__(self, mutants: list[Mutant], jobs: int, seconds: float, log: Any) -> None:
        self._mutants = mutants
        self._seconds = seconds
        self._jobs = jobs
        self._log = log
        self._items: dict[str, pytest.Item] = {}
        self._coverage = Coverage()
        self._killers: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._running: dict[int, tuple[Mutant, _Child]] = {}
        self._failed = ""
        self.is_broken = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        self._coverage = self._measure()
        if not self.is_broken:
            try:
                self._test_all()
            finally:
                for _, child in self._running.values():
                    child.kill()
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = report.nodeid

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    # -- coverage -------------------------------------------------------------------------------------

    def _measure(self) -> Coverage:
        """Run every test once, in a child, and record what it executes. Only new and changed tests are run again."""
        support = (path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_"))
        stored = RESULTS / f"coverage-{_state_hash(SOURCE.rglob('*.py'), support)}.json"
        for outdated in set(RESULTS.glob("coverage-*.json")) - {stored}:
            outdated.unlink()
        coverage = Coverage(**json.loads(stored.read_text())) if stored.exists() else Coverage()
        hashes = {name: _state_hash([ROOT / name]) for name in {_file_of(test) for test in self._items}}
        coverage.keep(file for file, recorded in coverage.files.items() if hashes.get(file, recorded) == recorded)
        missing = [item for test, item in self._items.items() if test not in coverage.lines]
        if missing:
            self._log(f"recording what {len(missing)} tests execute ...")
            coverage.files |= hashes
            child = _fork(lambda: self._record(coverage, missing, stored), cpu_seconds=0)
            os.waitpid(child.pid, 0)
            failed = child.result(0)
            child.close()
            if failed:
                self._log(f"these tests fail without a mutant: {failed}")
                self.is_broken = True
                return coverage
            coverage = Coverage(**json.loads(stored.read_text()))
        return coverage

    def _record(self, coverage: Coverage, items: list[pytest.Item], stored: Path) -> str:
        failed = []
        for item, following in _pairs(items):
            tracer = _Tracer()
            began = time.process_time()
            self._failed = ""
            threading.settrace(tracer)
            sys.settrace(tracer)
            self._run(item, following)
            if sys.gettrace() is not tracer:
                coverage.opaque.append(item.nodeid)
            sys.settrace(None)
            coverage.seconds[item.nodeid] = round(time.process_time() - began, 4)
            coverage.lines[item.nodeid] = {module: sorted(numbers) for module, numbers in tracer.lines.items()}
            if self._failed:
                failed.append(self._failed)
        if not failed:
            stored.write_text(json.dumps(vars(coverage)))
        return " ".join(failed)

    # -- mutants --------------------------------------------------------------------------------------

    def _test_all(self) -> None:
        running = self._running
        waiting = list(reversed(self._mutants))
        done = 0
        while waiting or running:
            while waiting and len(running) < self._jobs:
                mutant = waiting.pop()
                tests = self._tests_for(mutant)
                child = _fork(lambda mutant=mutant, tests=tests: self._attempt(mutant, tests))
                running[child.pid] = mutant, child
            for pid, (mutant, child) in list(running.items()):
                status = child.poll()
                if status is None:
                    continue
                del running[pid]
                killer = child.result(status)
                child.close()
                done += 1
                if killer.startswith(_BROKEN):
                    self._log(f"{mutant.place} {mutant.line} -> {mutant.becomes}: {killer}")
                    self.is_broken = True
                    continue
                if killer in self._items:
                    self._killers[mutant.module, mutant.function][killer] += 1
                _store(mutant, killer)
                mark = "killed" if killer else "SURVIVED"
                self._log(f"{done}/{len(self._mutants)} {mark} {mutant.place} {mutant.line} -> {mutant.becomes}")
            time.sleep(0.01)

    def _tests_for(self, mutant: Mutant) -> list[str]:
        coverage = self._coverage
        lines = _lines_of(mutant) if mutant.function else _lines_using(mutant.module, mutant.names)
        tests = coverage.tests_of(mutant.module, lines)
        killers = [test for test, _ in self._killers[mutant.module, mutant.function].most_common(5) if test in tests]
        chosen = self._affordable([*killers, *tests, *coverage.opaque])
        if not mutant.function:
            chosen += self._affordable(coverage.tests_near(mutant.module))
        return list(dict.fromkeys(chosen))

    def _affordable(self, tests: list[str]) -> list[str]:
        """Return the first tests that take as much CPU time as a mutant is worth."""
        spent = 0.0
        chosen = []
        for test in dict.fromkeys(tests):
            if test in self._items and spent + self._coverage.seconds[test] <= self._seconds:
                spent += self._coverage.seconds[test]
                chosen.append(test)
        return chosen

    def _attempt(self, mutant: Mutant, tests: list[str]) -> str:
        """Run tests on a mutant, in a child. Returns the test that failed; empty if all passed."""
        if not (mutant.function and _replace_code(mutant)):
            return _attempt_anew(mutant, tests)
        for item, following in _pairs([self._items[test] for test in tests]):
            try:
                self._run(item, following)
            except BaseException as error:  # noqa: BLE001 - whatever a mutant does kills it
                return f"{item.nodeid} ({error!r})"
            if self._failed:
                return self._failed
        return ""


def _pairs(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Yield each test with the one that follows it."""
    yield from itertools.zip_longest(items, items[1:])


class _Collected:
    """A pytest plugin that runs some tests in a given order and stops at the first failure."""

    def __init__(self, tests: list[str]) -> None:
        self._order = {test: number for number, test in enumerate(tests)}
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((one for one in items if one.nodeid in self._order), key=lambda one: self._order[one.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def _attempt_anew(mutant: Mutant, tests: list[str]) -> str:
    """Import the package again, with a mutant in place of its module, and run tests on it."""
    if not tests:
        return ""
    for name in list(sys.modules):
        if name.partition(".")[0] in ("reyn", "tests"):
            del sys.modules[name]
    sys.meta_path.insert(0, _MutantFinder(mutant))
    plugin = _Collected(tests)
    files = list(dict.fromkeys(map(_file_of, tests)))
    try:
        code = pytest.main([*_OPTIONS, "-x", "--basetemp", str(_temporary()), *files], plugins=[plugin])
    except BaseException as error:  # noqa: BLE001 - whatever a mutant does kills it
        return f"error: {error!r}"
    return plugin.failed or ("" if code in (0, 5) else f"exit {code}")


class _MutantFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> Any:
        if name != self._mutant.module:
            return None
        return importlib.util.spec_from_file_location(name, path_of(name), loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.source(), str(path_of(self._mutant.module)), "exec"), vars(module))  # noqa: S102 - the mutant is the module


def _replace_code(mutant: Mutant) -> bool:
    """Replace the code of the function that a mutant changes. Returns whether that was possible."""
    function = _function(mutant)
    if function is None:
        return False
    changed = compile(mutant.source(), str(path_of(mutant.module)), "exec")
    code = next((one for one in _codes(changed) if one.co_qualname == mutant.function), None)
    if code is None or code.co_freevars != function.__code__.co_freevars:
        return False
    function.__code__ = code
    return True


def _function(mutant: Mutant) -> FunctionType | None:
    found: Any = importlib.import_module(mutant.module)
    for name in mutant.function.split("."):
        found = inspect.getattr_static(found, name)
    match found:
        case property():
            found = found.fget
        case classmethod() | staticmethod():
            found = found.__func__
        case functools.cached_property():
            found = found.func
        case _:
            found = inspect.unwrap(found)
    return found if isinstance(found, FunctionType) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_bytes())


def _lines_of(mutant: Mutant) -> range:
    """Return the lines of the innermost statement that contains a mutant; of a compound one, its head."""
    last = mutant.number + path_of(mutant.module).read_bytes()[mutant.start : mutant.end].count(b"\n")
    best = range(mutant.number, last + 1)
    for node in ast.walk(_tree(mutant.module)):
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            if node.lineno <= mutant.number <= max(end, node.lineno):
                best = range(node.lineno, max(end, node.lineno, last) + 1)
    return best


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _lines_using(module: str, names: tuple[str, ...]) -> set[int]:
    """Return the lines of the functions that use one of some variables of their module, also through other ones."""
    wanted = set(names)
    lines: set[int] = set()
    for _ in range(3):
        for node in _tree(module).body:
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef) and _uses(inner, wanted):
                    lines.update(range(inner.body[0].lineno, (inner.end_lineno or inner.lineno) + 1))
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and _uses(node, wanted):
                wanted.update(_assigned(node))
    return lines


def _uses(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node))


# -- children -------------------------------------------------------------------------------------------------


def _temporary() -> Path:
    return Path(os.environ["TMPDIR"]) / "pytest"


_BROKEN = "broken: "
"""Begins the report of a child that failed itself."""


class _Child:
    """A forked process that reports one line."""

    def __init__(self, pid: int, reader: int, folder: str) -> None:
        self.pid = pid
        self._reader = reader
        self._folder = folder
        self._until = time.monotonic() + _WALL_SECONDS
        self._is_late = False

    def poll(self) -> int | None:
        """Return the exit status, or `None` while it runs; kill it when its time is over."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() > self._until and not self._is_late:
            self._is_late = True
            self.kill()
        return None

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)

    def result(self, status: int) -> str:
        """Return what killed the mutant; empty if it survived."""
        output = os.read(self._reader, 4096).decode(errors="replace")
        if os.WIFSIGNALED(status):
            return f"signal {os.WTERMSIG(status)}"
        return output

    def close(self) -> None:
        os.close(self._reader)
        shutil.rmtree(self._folder, ignore_errors=True)


def _fork(work: Any, cpu_seconds: int = _CPU_SECONDS) -> _Child:
    reader, writer = os.pipe()
    folder = tempfile.mkdtemp(prefix="mutant-")
    pid = os.fork()
    if pid:
        os.close(writer)
        return _Child(pid, reader, folder)
    output = _BROKEN
    try:
        os.setsid()
        os.close(reader)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if cpu_seconds:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        _use_temporary()
        output = work()
    except BaseException as error:  # noqa: BLE001 - the parent reports it
        output = f"{_BROKEN}{error!r}"
    finally:
        os.write(writer, output.encode(errors="replace")[:4000])
        os._exit(0)
    raise AssertionError


_current: list[pytest.Config] = []


def _use_temporary() -> None:
    factory: Any = _current[0]._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001 - pytest has no other way
    factory._given_basetemp, factory._basetemp = _temporary(), None  # noqa: SLF001 - pytest has no other way
    _current[0].get_terminal_writer()._file = Path(os.devnull).open("w")  # noqa: SIM115, SLF001 - pytest has no other way


class _Configured:
    def pytest_configure(self, config: pytest.Config) -> None:
        if not _current:
            _current.append(config)


_OPTIONS = ("-qq", "-p", "no:xdist", "-p", "no:cacheprovider", "--capture=fd", "--no-header", "--tb=no", "-W", "error")


# -- results --------------------------------------------------------------------------------------------------


def _state_hash(*groups: Iterable[Path | str]) -> str:
    hashed = hashlib.sha256()
    for group in groups:
        for one in sorted(group, key=str):
            hashed.update(one.read_bytes() if isinstance(one, Path) else one.encode())
    return hashed.hexdigest()[:16]


def _result_file(module: str) -> Path:
    return RESULTS / f"{module}-{_state_hash([path_of(module)])}.jsonl"


def _store(mutant: Mutant, killer: str) -> None:
    with _result_file(mutant.module).open("a") as file:
        file.write(json.dumps({"key": mutant.key, "killer": killer}) + "\n")


def _stored(module: str) -> dict[str, str]:
    """Return the results for a module as it is now: the test that killed each mutant, or an empty string."""
    file = _result_file(module)
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {row["key"]: row["killer"] for row in rows}


# -- command --------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description="Test the tests of permissions and file changes with mutants.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as reyn.permissions.gate; default: all")
    parser.add_argument("--sample", type=int, metavar="N", help="test N mutants, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the sample")
    parser.add_argument("--survivors", action="store_true", help="list survivors of earlier runs and test nothing")
    parser.add_argument("--anew", action="store_true", help="forget earlier results")
    parser.add_argument("--check", action="store_true", help="only check that every explanation matches a mutant")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants are tested at once")
    parser.add_argument(
        "--seconds", type=float, default=4, help="the CPU time of the tests of a mutant, fast ones first"
    )
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="the tests to run; default: those of the modules")
    options = parser.parse_args()
    for one in (stale := stale_explanations()):
        print(f"no such mutant: {one.module}: {one.line} -> {one.becomes or '...'}")
    if options.check:
        return 1 if stale else 0
    modules = tuple(options.modules) or MODULES
    chosen = [mutant for module in modules for mutant in mutants_of(module)]
    if options.sample is not None:
        chosen = sorted(random.Random(options.seed).sample(chosen, min(options.sample, len(chosen))), key=_position)  # noqa: S311 - not a secret
    RESULTS.mkdir(exist_ok=True)
    for module in modules if options.anew else ():
        _result_file(module).unlink(missing_ok=True)
    if not options.survivors and not _execute(chosen, options):
        return 1
    return _report(chosen) or (1 if stale else 0)


def _position(mutant: Mutant) -> tuple[int, int]:
    return MODULES.index(mutant.module), mutant.start


def _execute(chosen: list[Mutant], options: argparse.Namespace) -> bool:
    known = {module: _stored(module) for module in {mutant.module for mutant in chosen}}
    left = [mutant for mutant in chosen if not known[mutant.module].get(mutant.key)]
    if not left:
        return True
    out = os.fdopen(os.dup(1), "w", buffering=1)
    left.sort(key=lambda mutant: mutant.key in known[mutant.module])
    runner = Runner(left, options.jobs, options.seconds, lambda text: print(text, file=out))
    tests = options.tests or [test for test in TESTS if (ROOT / test).exists()]
    ignored = [f"--ignore={path}" for path in LEFT_OUT]
    os.chdir(ROOT)
    code = pytest.main([*_OPTIONS, *ignored, *tests], plugins=[runner, _Configured()])
    return code in (0, 5) and not runner.is_broken


def _report(chosen: list[Mutant]) -> int:
    """Print what survived. Returns 1 if there are too many survivors, or one that is not explained."""
    explained = explanations()
    rows: dict[str, tuple[int, ...]] = {}
    for module in dict.fromkeys(mutant.module for mutant in chosen):
        stored = _stored(module)
        tested = [mutant for mutant in chosen if mutant.module == module and mutant.key in stored]
        survivors = [mutant for mutant in tested if not stored[mutant.key]]
        unexplained = [mutant for mutant in survivors if not any(one.covers(mutant) for one in explained)]
        for mutant in unexplained:
            print(f"\n{mutant.place} in {mutant.function or 'the module'}\n- {mutant.line}\n+ {mutant.becomes}")
        for one in explained:
            if any(map(one.covers, tested)) and not any(map(one.covers, survivors)):
                print(f"\nexplained but killed: {module}: {one.line} -> {one.becomes or '...'}")
        killed, known = len(tested) - len(survivors), len(survivors) - len(unexplained)
        rows[module] = len(tested), killed, len(survivors), known
    rows["all"] = total = tuple(map(sum, zip(*rows.values(), strict=True)))
    print(f"\n{'module':<26}{'mutants':>9}{'killed':>9}{'survived':>10}{'explained':>11}")
    for name, figures in rows.items():
        print(f"{name:<26}{figures[0]:>9}{figures[1]:>9}{figures[2]:>10}{figures[3]:>11}")
    return int(total[2] != total[3] or total[2] > MAX_SURVIVORS * total[0])


if __name__ == "__main__":
    sys.exit(main())
