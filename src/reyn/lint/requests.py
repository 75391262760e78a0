"""Rules on permissions: compare the needs of a skill's ops and python steps with the requests in skill.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.documents import nearest
from reyn.permissions import RuleError, parse_requests
from reyn.sandbox.interpreter_choice import needs_cpython
from reyn.skills import codes
from reyn.skills.values import DEFAULT_OPS, Iterate, PythonCall, RunOp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.config.values import PythonSandbox
    from reyn.documents import Document, Severity
    from reyn.errors import Finding
    from reyn.skills import LoadResult, Skill
    from reyn.skills.values import AnyStep
    from reyn.vocabulary import Vocabulary


def unknown_permissions(loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report permission keys that do not exist."""
    document = loaded.folder.read("skill.md")
    permissions = document.value.get("permissions") if document and isinstance(document.value, dict) else None
    for key, value in permissions.items() if isinstance(permissions, dict) else ():
        if document is not None and key not in vocabulary.permission_keys:
            fix = nearest(key, vocabulary.permission_keys)
            if key == "file" and isinstance(value, dict) and value.keys() <= {"read", "write"}:
                fix = f"write {' and '.join(f'`file.{access}:`' for access in value)}"
            message = f"unknown permission `{key}`"
            yield document.finding(codes.UNKNOWN_PERMISSION, message, "permissions", key, fix=fix)


def malformed_requests(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report requests that are not understood."""
    document = loaded.folder.read("skill.md")
    permissions = loaded.partial.permissions if loaded.partial else {}
    for key, value in permissions.items():
        try:
            parse_requests({key: value})
        except RuleError as error:
            if document is not None:
                yield document.finding(codes.WRONG_VALUE, f"`permissions.{key}`: {error}", "permissions", key)


def _written(document: Document, kind: str, index: int) -> int:
    """Return the position of an op in the list that the author wrote, in which `mcp:SERVER/*` stands for several."""
    listed = document.value.get("allowed_ops") if isinstance(document.value, dict) else None
    for position, name in enumerate(listed if isinstance(listed, list) else ()):
        if name == kind or (isinstance(name, str) and name.endswith("/*") and kind.startswith(name[:-1])):
            return position
    return index


def missing_requests(loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report ops whose permission skill.md does not request."""
    skill = loaded.partial
    if skill is None:
        return
    document = loaded.folder.read("skill.md")
    for location, step in _steps(skill):
        spec = vocabulary.op(str(step.op.get("kind"))) if isinstance(step, RunOp) else None
        if document and spec and spec.permission and spec.permission not in skill.permissions:
            message = f"`{spec.kind}` in {location} needs the permission `{spec.permission}`"
            fix = f"add `{spec.permission}:` under `permissions`"
            yield document.finding(codes.MISSING_REQUEST, message, "permissions", fix=fix)
    for name, phase in skill.phases.items():
        document = loaded.folder.read(f"phases/{name}.md")
        for index, kind in enumerate(phase.allowed_ops):
            spec = vocabulary.op(kind)
            permission = spec.permission if spec else None
            if document and permission and permission not in skill.permissions:
                message = f"`{kind}` needs the permission `{permission}`, which skill.md does not request"
                fix = f"add `{permission}:` under `permissions` in skill.md"
                yield document.finding(
                    codes.MISSING_REQUEST, message, "allowed_ops", _written(document, kind, index), fix=fix
                )


def unused_requests(loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report permissions that nothing in the skill uses."""
    skill, document = loaded.partial, loaded.folder.read("skill.md")
    if skill is None or document is None:
        return
    specs = [spec for kind in _used_kinds(skill) if (spec := vocabulary.op(kind)) is not None]
    used = {key for spec in specs for key in (spec.permission, *spec.optional_permissions)}
    if any(True for _ in _python_calls(skill)):
        used.add("python")
    for key in skill.permissions:
        if key in vocabulary.permission_keys and key not in used:
            message, path = f"permission `{key}` is requested but not used", ("permissions", key)
            yield document.finding(codes.UNUSED_REQUEST, message, *path, fix="remove it", severity="warning")


def python_steps(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report python steps without a matching `permissions.python` entry, and entries that nothing matches."""
    skill, document = loaded.partial, loaded.folder.read("skill.md")
    if skill is None or document is None:
        return
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
    called = {(step.module, step.function) for _, step in _python_calls(skill)}
    for index, entry in enumerate(entries):
        path: tuple[str | int, ...] = ("permissions", "python", index)
        if (entry.get("module"), entry.get("function")) not in called:
            message = f"no step calls `{entry.get('function')}` of `{entry.get('module')}`"
            yield document.finding(codes.UNUSED_REQUEST, message, *path, fix="remove it", severity="warning")
        if entry.get("mode") == "unsafe" and not (entry.get("reason") or entry.get("unsafe_reason")):
            message = f"unsafe function `{entry.get('function')}` has no reason"
            yield document.finding(codes.MISSING_REASON, message, *path, fix="add `reason:`", severity="warning")


def python_sandboxes(loaded: LoadResult, sandbox: PythonSandbox) -> Iterator[Finding]:
    """Report for each safe python step which sandbox it runs in, and why; `sandbox` is the operator's choice."""
    skill, document = loaded.partial, loaded.folder.read("skill.md")
    if skill is None or document is None:
        return
    for location, step in _python_calls(skill):
        source = skill.modules.get(step.module)
        if step.mode != "safe" or source is None:
            continue
        reason = needs_cpython(source)
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


def _used_kinds(skill: Skill) -> set[str]:
    """Return the op kinds that a phase allows or a step uses."""
    explicit = [phase.allowed_ops for phase in skill.phases.values() if phase.allowed_ops != DEFAULT_OPS]
    kinds = {kind for ops in explicit for kind in ops}
    if len(explicit) < len(skill.phases):
        kinds |= {*DEFAULT_OPS}
    return kinds | {str(step.op.get("kind")) for _, step in _steps(skill) if isinstance(step, RunOp)}


def _python_calls(skill: Skill) -> Iterator[tuple[str, PythonCall]]:
    """Yield every python step with a description of its location."""
    return ((location, step) for location, step in _steps(skill) if isinstance(step, PythonCall))


def _steps(skill: Skill) -> Iterator[tuple[str, AnyStep]]:
    """Yield every step with a description of its location; for `iterate`, the applied step."""
    lists: list[tuple[str, tuple[Any, ...]]] = [
        (f"the preprocessor of `{name}`", phase.preprocessor) for name, phase in skill.phases.items()
    ]
    if skill.postprocessor:
        lists.append(("the postprocessor", skill.postprocessor.steps))
    for location, steps in lists:
        for step in steps:
            yield location, step.apply if isinstance(step, Iterate) else step
