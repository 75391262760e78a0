"""The op table: the op kinds that a runtime can execute, and their validation at registration.

A kind is built in, provided by an installed package (entry points of the group `reyn.ops`), or passed to
`OSRuntime.open(ops=…)`. The vocabulary of the skill language is derived from the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, cached_property
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config.load import load_attribute
from reyn.errors import ModuleUnloadable, OpInvalid
from reyn.journal import check_json, ordered
from reyn.journal.registry import OP_KIND, fixed_kinds
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.ops.asking import AskAgentOp, AskUserOp
from reyn.ops.file.op import FileOp
from reyn.ops.memory import CompactOp, ForgetOp, RecallOp, RememberOp
from reyn.ops.op import Op, OpSetup, ProjectOp
from reyn.ops.overviews import HasOverview
from reyn.ops.programs import SandboxedExecOp, ShellOp
from reyn.ops.python import PythonOp
from reyn.ops.retrieval import EmbedOp, IndexDropOp, IndexQueryOp, IndexWriteOp
from reyn.ops.run_skill import JudgeOutputOp, RunSkillOp, StartSkillOp
from reyn.ops.skill_drafts import SkillDraftOp, SkillImportOp, SkillInstallOp
from reyn.ops.skill_reports import LintOp, SkillGraphOp, SkillResolveOp, SkillTryOp
from reyn.ops.web.fetch import WebFetchOp
from reyn.ops.web.search import WebSearchOp
from reyn.vocabulary import EFFECT_ORDER, PERMISSIONS, OpForm, OpSpec, Vocabulary

if TYPE_CHECKING:
    from pathlib import Path


OP_ENTRY_POINTS = "reyn.ops"

BUILT_IN: tuple[Op, ...] = (
    FileOp(),
    AskUserOp(),
    AskAgentOp(),
    RunSkillOp(),
    StartSkillOp(),
    JudgeOutputOp(),
    LintOp(),
    SkillResolveOp(),
    SkillDraftOp(),
    SkillImportOp(),
    SkillGraphOp(),
    SkillTryOp(),
    SkillInstallOp(),
    WebFetchOp(),
    WebSearchOp(),
    SandboxedExecOp(),
    ShellOp(),
    PythonOp(),
    RememberOp(),
    ForgetOp(),
    RecallOp(),
    IndexWriteOp(),
    IndexQueryOp(),
    IndexDropOp(),
    EmbedOp(),
    CompactOp(),
)
_BUILT_IN_KINDS = frozenset(op.spec.kind for op in BUILT_IN)

RESERVED_KINDS = (
    OpSpec(
        "mcp",
        "No op itself: each tool of an MCP server is one, `mcp:SERVER/TOOL`.",
        "unsafe",
        "mcp",
        advice="name the tools instead: `mcp:SERVER/TOOL`, or `mcp:SERVER/*` for all of a server",
    ),
    OpSpec("index_*", "Other ops of search indexes.", "unsafe"),
)
"""Kinds that no run can execute: later versions implement them, or `advice` names others. A phase may allow them."""

_KIND = re.compile(OP_KIND)


class OpTable:
    """The ops of one runtime, and the vocabulary derived from them."""

    def __init__(self, ops: Iterable[Op], problems: Iterable[str] = ()) -> None:
        self._ops: dict[str, Op] = {op.spec.kind: op for op in ops}
        self.problems = tuple(problems)
        """Why ops of installed packages could not be registered. They are reported, and missing where they are used."""
        specs = (*(op.spec for op in self._ops.values()), *RESERVED_KINDS)
        self.vocabulary = Vocabulary(specs)

    def get(self, kind: str) -> Op | None:
        """Return the op of a kind, or `None` if it is not installed."""
        return self._ops.get(kind)

    @cached_property
    def listing(self) -> dict[str, HasOverview]:
        """The ops that list what they can act on, by kind."""
        named = {kind: op for kind, op in self._ops.items() if op.spec.has_overview}
        return {kind: op for kind, op in named.items() if isinstance(op, HasOverview)}

    def is_foreign(self, kind: str) -> bool:
        """Return whether a kind comes from outside the package."""
        return kind not in _BUILT_IN_KINDS

    def set_up(self, setup: OpSetup) -> OpTable:
        """Return the table for one project: the built-in ops get its configuration."""
        ops = (
            op.set_up(setup) if kind in _BUILT_IN_KINDS and isinstance(op, ProjectOp) else op
            for kind, op in self._ops.items()
        )
        return OpTable(ops, self.problems)

    def with_ops(self, *ops: Any) -> OpTable:
        """Return a table with these ops added.

        Raises:
            OpInvalid: An object is not an op, or its kind cannot be registered.
        """
        table = dict(self._ops)
        for op in ops:
            _check(op, table)
            table[op.spec.kind] = op
        return OpTable(table.values(), self.problems)

    def with_problems(self, *problems: str) -> OpTable:
        """Return a table that reports further problems."""
        return OpTable(self._ops.values(), (*self.problems, *problems)) if problems else self

    def with_tools(self, names: Iterable[str], root: Path) -> OpTable:
        """Return a table with the tools that a project registers in `reyn.yaml`: `tools: [mypackage.tools:search]`.

        A tool that cannot be loaded is a problem of the table. Ops that are in the table are not replaced: the caller
        may have passed the same tool. `reyn.permissions.trust` decides before whether the project may load code;
        modules are named by the configuration alone, never by a journal or an archive.

        Args:
            names: The tools, as `module:attribute`.
            root: The folder in which modules are found, besides the installed ones.
        """
        table, problems = self, list[str]()
        for name in names:
            try:
                op = load_attribute(name, root)
                if not isinstance(op, Op):
                    problems.append(f"tool `{name}`: a {type(op).__name__} is not a tool; decorate it with `@tool`")
                elif table.get(op.spec.kind) is None or not table.is_foreign(op.spec.kind):
                    table = table.with_ops(op)
            except (ModuleUnloadable, OpInvalid) as error:
                problems.append(f"tool `{name}`: {error.message}")
        return table.with_problems(*problems)

    def overlaid(self, *ops: Any) -> OpTable:
        """Return a table with these ops added; they replace ops of the same kind that are not built in.

        Raises:
            OpInvalid: An object is not an op, or its kind cannot be registered.
        """
        kinds = {op.spec.kind for op in ops if isinstance(op, Op)}
        rest = [op for kind, op in self._ops.items() if kind not in kinds or kind in _BUILT_IN_KINDS]
        return OpTable(rest, self.problems).with_ops(*ops)


@cache
def standard_ops() -> OpTable:
    """The built-in ops and those of installed packages. A broken package does not keep the others from working."""
    table, problems = OpTable(BUILT_IN), []
    for entry in sorted(entry_points(group=OP_ENTRY_POINTS), key=lambda entry: (entry.name, entry.value)):
        try:
            table = table.with_ops(_load(entry))
        except OpInvalid as error:
            problems.append(f"op `{entry.name}` (`{entry.value}`): {error.message}")
    return OpTable((op for spec in table.vocabulary.ops if (op := table.get(spec.kind)) is not None), problems)


def _load(entry: Any) -> Any:
    """Load the op that an entry point names: an object, or a class without arguments."""
    try:
        loaded = entry.load()
        return loaded() if isinstance(loaded, type) else loaded
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise OpInvalid(f"it cannot be loaded: {type(error).__name__}: {error}") from error


def check_op(op: Any) -> None:
    """Check that an object is an op that can be registered besides the built-in ones.

    Raises:
        OpInvalid: It is not.
    """
    _check(op, {built_in.spec.kind: built_in for built_in in BUILT_IN})


def _check(op: Any, table: dict[str, Op]) -> None:
    try:
        is_op = isinstance(op, Op) and isinstance(op.spec, OpSpec)
    except Exception as error:
        raise OpInvalid(f"{type(op).__name__} is not an op: {error}") from error
    if not is_op:
        raise OpInvalid(f"{type(op).__name__} is not an op: it needs `spec`, `plan` and `perform`")
    spec: OpSpec = op.spec
    if not isinstance(spec.kind, str):
        raise OpInvalid(f"the op kind {spec.kind!r} is not a text")
    reason = _name_conflict(spec.kind, table) or _spec_fault(spec)
    if not reason and spec.has_overview and not isinstance(op, HasOverview):
        reason = "its specification has `has_overview`, but it has no method `overview`"
    if reason:
        raise OpInvalid(f"the op kind `{spec.kind}` cannot be registered: {reason}")


def _spec_fault(spec: OpSpec) -> str:
    """Return the fault of a specification, or an empty string."""
    try:
        check_json(msgspec.to_builtins(spec))
        if msgspec.json.decode(ordered(spec), type=OpSpec) != spec:
            return "its specification changes when it is recorded; use plain JSON values"
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        return f"its specification is invalid: {error}"
    if not spec.forms:
        return "it has no forms"
    names = [form.op for form in spec.forms]
    if len(set(names)) != len(names) or (len(names) > 1 and None in names):
        return "form names must be unique"
    for form in spec.forms:
        if EFFECT_ORDER.index(form.effect) > EFFECT_ORDER.index(spec.effect):
            name = f"form `{form.op}`" if form.op else "its form"
            return f"{name} has effect `{form.effect}`, but the op declares `{spec.effect}`"
    known = {entry.key for entry in PERMISSIONS}
    if wrong := {key for key in (spec.permission, *spec.optional_permissions) if key} - known:
        return f"it names the unknown permission `{min(wrong)}`"
    for form in (*spec.forms, *spec.when_truncated):
        if reason := _form_error(spec.kind, form):
            return f"{f'form `{form.op}`: ' if form.op else ''}{reason}"
    for field in (spec.skill_field, spec.target_field):
        if field and not all(field in form.arguments["properties"] for form in spec.forms):
            return f"no field is called `{field}`"
    return ""


def _name_conflict(kind: str, table: dict[str, Op]) -> str:
    if not _KIND.fullmatch(kind):
        return "use up to 40 lower-case letters, digits and `_`, beginning with a letter"
    conflicts = [event for event in (f"{kind}_started", f"{kind}_completed") if event in fixed_kinds()]
    if conflicts:
        return f"its event `{conflicts[0]}` exists already"
    if kind in table:
        return "the kind is already registered"
    return "the name is reserved" if any(spec.matches(kind) for spec in RESERVED_KINDS) else ""


def _form_error(kind: str, form: OpForm) -> str:
    """Return why a form is invalid, or an empty string."""
    properties = form.arguments.get("properties", {})
    if not isinstance(properties, dict) or not isinstance(form.arguments.get("required"), list):
        return "build `arguments` with `reyn.vocabulary.schemas.arguments`"
    constants = {"kind": {"const": kind}} | ({"op": {"const": form.op}} if form.op else {})
    if form.arguments.get("additionalProperties") is not False or any(
        properties.get(name) != schema for name, schema in constants.items()
    ):
        return "build `arguments` with `reyn.vocabulary.schemas.arguments`"
    try:
        arguments = compile_schema(form.arguments)
        compile_schema(form.result)
    except SchemaInvalid as invalid:
        return f"a schema is invalid: {invalid}"
    if kind.startswith("mcp:"):  # servers give no examples; this one shows the names of the arguments alone
        return ""
    error = arguments.first_error(form.example)
    return f"the example is invalid: {error.path('example')}: {error.message}" if error else ""
