"""Rules on ops and permissions: arguments of ops in steps, and requests in skill.md for what ops and steps need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reyn.documents import Document, KeyPath, Severity, nearest, nearest_or_all
from reyn.errors import Finding, codes
from reyn.expressions import has_expressions
from reyn.jsonschema import compile_schema
from reyn.permissions import RuleError, parse_requests
from reyn.permissions.rules import OPEN
from reyn.skills.front_matter import step_lists
from reyn.skills.step_types import PythonCall, RunOp

if TYPE_CHECKING:
    from reyn.config.values import PythonSandbox
    from reyn.skills import LoadResult, Skill
    from reyn.vocabulary import Vocabulary

_RUNS_ANY_SKILL = frozenset({"run_skill", "start_skill"})
"""The permissions of ops that run a skill of the model's choice. It has no more rights than the skill of the run."""


def unknown_permissions(loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report permission keys that do not exist."""
    document = loaded.folder.read("skill.md")
    if document is not None:
        yield from unknown_keys(document, vocabulary)


def unknown_keys(document: Document, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report permission keys of a skill or an agent that do not exist."""
    permissions = document.value.get("permissions") if isinstance(document.value, dict) else None
    for key, value in permissions.items() if isinstance(permissions, dict) else ():
        if key not in vocabulary.permission_keys:
            fix = nearest_or_all(key, vocabulary.permission_keys)
            if key == "file" and isinstance(value, dict) and value.keys() <= {"read", "write"}:
                fix = f"write {' and '.join(f'`file.{access}:`' for access in value)}"
            message = f"unknown permission `{key}`"
            yield document.finding(codes.UNKNOWN_PERMISSION, message, "permissions", key, fix=fix)


def malformed_requests(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report requests that are not understood."""
    if loaded.partial is not None:
        yield from malformed(loaded.document(), loaded.partial.permissions)


def malformed(document: Document, permissions: dict[str, Any]) -> Iterator[Finding]:
    """Report requests of a skill or an agent that are not understood."""
    for key, value in permissions.items():
        try:
            parse_requests({key: value})
        except RuleError as error:
            message = f"`permissions.{key}`: {error}"
            yield document.finding(codes.WRONG_VALUE, message, "permissions", key, fix=error.fix)


def _written(document: Document, kind: str, index: int) -> int:
    """Return the position of an op in the list that the author wrote, in which `mcp:SERVER/*` stands for several."""
    listed = document.value.get("allowed_ops") if isinstance(document.value, dict) else None
    for position, name in enumerate(listed if isinstance(listed, list) else ()):
        if name == kind or (isinstance(name, str) and name.endswith("/*") and kind.startswith(name[:-1])):
            return position
    return index


def missing_requests(skill: Skill, loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report ops whose permission skill.md does not request."""
    for placed in skill.steps:
        applied = placed.applied
        spec = vocabulary.op(str(applied.op.get("kind"))) if isinstance(applied, RunOp) else None
        if spec and spec.permission and spec.permission not in (*skill.permissions, *OPEN):
            message = f"`{spec.kind}` in {placed.location} needs the permission `{spec.permission}`"
            fix = f"add `{spec.permission}:` under `permissions`"
            yield loaded.document().finding(codes.MISSING_REQUEST, message, "permissions", fix=fix)
    for name, phase in skill.phases.items():
        for index, kind in enumerate(phase.allowed_ops):
            spec = vocabulary.op(kind)
            permission = spec.permission if spec else None
            if permission and permission not in (*skill.permissions, *OPEN):
                document = loaded.document(name)
                message = f"`{kind}` needs the permission `{permission}`, which skill.md does not request"
                fix = f"add `{permission}:` under `permissions` in skill.md"
                yield document.finding(
                    codes.MISSING_REQUEST, message, "allowed_ops", _written(document, kind, index), fix=fix
                )
    for name, sub_skill in skill.skills.items():
        for key in sub_skill.permissions:
            if key in vocabulary.permission_keys and key not in (*skill.permissions, *OPEN, "python"):
                message = f"the skill `{name}` requests `{key}`, and has no more rights than this skill"
                fix = f"add `{key}:` under `permissions`, or what `{name}` does with it is denied"
                document = loaded.document()
                yield document.finding(codes.MISSING_REQUEST, message, "permissions", fix=fix, severity="warning")


def unused_requests(skill: Skill, loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report permissions that nothing uses, neither the skill nor one that it runs: that has no rights beyond them."""
    steps = [placed.applied for placed in skill.steps]
    kinds = {kind for phase in skill.phases.values() for kind in phase.allowed_ops}
    kinds |= {str(step.op.get("kind")) for step in steps if isinstance(step, RunOp)}
    specs = [spec for kind in kinds if (spec := vocabulary.op(kind)) is not None]
    used = {key for spec in specs for key in (spec.permission, *spec.optional_permissions)}
    if any(isinstance(step, PythonCall) for step in steps):
        used.add("python")
    if not _RUNS_ANY_SKILL.isdisjoint(used):
        return
    used |= {key for sub_skill in skill.skills.values() for key in sub_skill.permissions}
    for key in skill.permissions:
        if key in vocabulary.permission_keys and key not in used:
            message, path = f"permission `{key}` is requested but not used", ("permissions", key)
            yield loaded.document().finding(codes.UNUSED_REQUEST, message, *path, fix="remove it", severity="warning")


def python_steps(skill: Skill, loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report python steps without a matching `permissions.python` entry, and entries that nothing matches."""
    document = loaded.document()
    value = skill.permissions.get("python")
    entries = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
    by_function = {(str(entry.get("module")), str(entry.get("function"))): entry for entry in reversed(entries)}
    for location, step in _python_calls(skill):
        entry = by_function.get((step.module, step.function))
        if entry is None:
            message = f"`{step.function}` of `{step.module}` in {location} has no permission"
            fix = f"add `{{module: {step.module}, function: {step.function}}}` under `permissions.python`"
            yield document.finding(codes.MISSING_PERMISSION, message, "permissions", "python", fix=fix)
        elif step.mode == "unsafe" and entry.get("mode") != "unsafe":
            message = f"`{step.function}` in {location} is unsafe, but its permission is not"
            fix = "add `mode: unsafe` to the permission"
            yield document.finding(codes.MISSING_PERMISSION, message, "permissions", "python", fix=fix)
    called = {(step.module, step.function) for one in (skill, *skill.skills.values()) for _, step in _python_calls(one)}
    for index, entry in enumerate(entries):
        path: tuple[str | int, ...] = ("permissions", "python", index)
        if (entry.get("module"), entry.get("function")) not in called:
            message = f"no step calls `{entry.get('function')}` of `{entry.get('module')}`"
            yield document.finding(codes.UNUSED_REQUEST, message, *path, fix="remove it", severity="warning")
        if entry.get("mode") == "unsafe" and not (entry.get("reason") or entry.get("unsafe_reason")):
            message = f"unsafe function `{entry.get('function')}` has no reason"
            yield document.finding(codes.MISSING_REASON, message, *path, fix="add `reason:`", severity="warning")


def _cpython_reason(source: str) -> str:
    """Return why a module needs CPython; empty if not. Most skills have none, and need no sandbox to be checked."""
    from reyn.sandbox.interpreter_choice import needs_cpython

    return needs_cpython(source)


def python_sandboxes(skill: Skill, loaded: LoadResult, sandbox: PythonSandbox) -> Iterator[Finding]:
    """Report for each safe python step which sandbox it runs in, and why; `sandbox` is the operator's choice."""
    document = loaded.document()
    for location, step in _python_calls(skill):
        source = skill.modules.get(step.module)
        if step.mode != "safe" or source is None:
            continue
        reason = _cpython_reason(source)
        message = f"`{step.function}` of `{step.module}` in {location}"
        severity: Severity = "info"
        if reason and sandbox == "monty":
            message, severity = f"{message} cannot run in Monty, because {reason}; `python.sandbox` is `monty`", "error"
        elif reason or sandbox == "process":
            reason = reason or "`python.sandbox` is `process`"
            message = f"{message} runs in CPython inside the process sandbox, because {reason}"
        else:
            message = f"{message} runs in Monty"
        yield document.finding(codes.PYTHON_SANDBOX, message, "permissions", "python", severity=severity)


def _python_calls(skill: Skill) -> Iterator[tuple[str, PythonCall]]:
    """Yield every python step with a description of its location."""
    for placed in skill.steps:
        if isinstance(placed.applied, PythonCall):
            yield placed.location, placed.applied


def step_arguments(loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report ops of steps that no run can execute: an unknown, missing or invalid argument."""
    skill = loaded.folder.read("skill.md")
    for document in (*((skill,) if skill is not None else ()), *loaded.phase_documents):
        for path, step in _run_ops(document.value):
            for wrong, where in _errors(step, vocabulary):
                yield document.finding(codes.BAD_STEP, wrong, *path, *where)


def _run_ops(value: Any) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield the arguments of every `run_op` step of a file, also of one that `iterate` applies, with their paths."""
    for path, steps in (*step_lists(value), *_checks(value)):
        for index, step in enumerate(steps):
            inner = step.get("iterate") if isinstance(step, dict) else None
            applied = inner.get("apply") if isinstance(inner, dict) else None
            for found, where in ((step, ()), (applied, ("iterate", "apply"))):
                arguments = found.get("run_op") if isinstance(found, dict) else None
                if isinstance(arguments, dict) and isinstance(arguments.get("op"), dict):
                    yield (*path, index, *where, "run_op"), arguments


def _checks(value: Any) -> Iterator[tuple[KeyPath, list[Any]]]:
    """Yield the check of every node, with its path."""
    nodes = value.get("nodes") if isinstance(value, dict) else None
    for node, settings in nodes.items() if isinstance(nodes, dict) else ():
        if isinstance(settings, dict) and isinstance(settings.get("check"), list):
            yield ("nodes", node, "check"), settings["check"]


def _errors(step: dict[str, Any], vocabulary: Vocabulary) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what is wrong with the op of a step, and where. Values that come from the artifact are not known yet."""
    op, bound = step["op"], step.get("args_from")
    bound = bound if isinstance(bound, dict) else {}
    spec = vocabulary.op(str(op.get("kind")))
    if spec is None or not spec.forms or not spec.is_step or "op" in bound:
        return  # a kind that is unknown, or no step, is reported where the skill is loaded
    form = vocabulary.form_of(op)
    if form is None:
        names = ", ".join(f"`{one.op}`" for one in spec.forms)
        yield f"`{spec.kind}` needs `op`: one of {names}", ("op",)
        return
    known = form.arguments["properties"]
    for where, arguments in (("op", op), ("args_from", bound)):
        for name in arguments:
            if name not in known:
                hint = nearest(str(name), known)
                yield f"`{spec.kind}` has no argument `{name}`{f'; {hint}' if hint else ''}", (where, str(name))
    bound = bound | {name: value for name, value in op.items() if has_expressions(value)}
    literal = {name: value for name, value in op.items() if name not in bound and name in known}
    required = [name for name in form.arguments["required"] if name not in bound]
    schema = form.arguments | {"required": required}
    if any(name in bound for choice in schema.get("anyOf", ()) for name in choice["required"]):
        del schema["anyOf"]
    error = compile_schema(schema).first_error(literal)
    if error is not None:
        yield f"`{spec.kind}`: {error.path('op')}: {error.message}", ("op",)
