"""Rules about what a skill asks for: ops and python steps against the permissions it requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.documents import nearest
from reyn.skills import codes
from reyn.skills.values import DEFAULT_OPS, Iterate, PythonCall, RunOp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.documents import Severity
    from reyn.errors import Finding
    from reyn.skills import Reading, Skill
    from reyn.skills.values import AnyStep
    from reyn.vocabulary import Vocabulary


def unknown_permissions(reading: Reading, vocabulary: Vocabulary) -> Iterator[Finding]:
    document = reading.folder.front("skill.md")
    asked = document.value.get("permissions") if document and isinstance(document.value, dict) else None
    for key in asked if isinstance(asked, dict) else ():
        if document is not None and key not in vocabulary.permission_keys:
            fix = nearest(key, vocabulary.permission_keys)
            message = f"unknown permission `{key}`"
            severity: Severity = "warning" if reading.folder.is_older else "error"
            yield document.finding(codes.UNKNOWN_PERMISSION, message, "permissions", key, fix=fix, severity=severity)


def missing_requests(reading: Reading, vocabulary: Vocabulary) -> Iterator[Finding]:
    skill = reading.draft
    if skill is not None:
        yield from _missing_in_steps(reading, skill, vocabulary)
    for name, phase in skill.phases.items() if skill else ():
        document = reading.folder.front(f"phases/{name}.md")
        for index, kind in enumerate(phase.allowed_ops):
            spec = vocabulary.op(kind)
            needed = spec.permission if spec else None
            if skill and document and needed and needed not in skill.permissions:
                message = f"`{kind}` needs the permission `{needed}`, which skill.md does not request"
                fix = f"Add `{needed}:` under `permissions` in skill.md."
                yield document.finding(codes.NO_REQUEST, message, "allowed_ops", index, fix=fix)


def _missing_in_steps(reading: Reading, skill: Skill, vocabulary: Vocabulary) -> Iterator[Finding]:
    document = reading.folder.front("skill.md")
    for where, step in _steps(skill):
        spec = vocabulary.op(str(step.op.get("kind"))) if isinstance(step, RunOp) else None
        if document and spec and spec.permission and spec.permission not in skill.permissions:
            message = f"{where} performs `{spec.kind}`, which needs the permission `{spec.permission}`"
            fix = f"Add `{spec.permission}:` under `permissions`."
            yield document.finding(codes.NO_REQUEST, message, "permissions", fix=fix)


def unused_requests(reading: Reading, vocabulary: Vocabulary) -> Iterator[Finding]:
    skill, document = reading.draft, reading.folder.front("skill.md")
    if skill is None or document is None:
        return
    used = {spec.permission for spec in vocabulary.ops if spec.kind in _allowed(skill)}
    used |= {key for spec in vocabulary.ops if spec.kind in _allowed(skill) for key in spec.optional_permissions}
    if any(True for _ in _python_calls(skill)):
        used.add("python")
    for key in skill.permissions:
        if key in vocabulary.permission_keys and key not in used:
            message = f"`{key}` is requested, but nothing in the skill uses it"
            yield document.finding(
                codes.UNUSED_REQUEST, message, "permissions", key, fix="Remove it.", severity="warning"
            )


def python_steps(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    skill, document = reading.draft, reading.folder.front("skill.md")
    if skill is None or document is None:
        return
    entries = skill.permissions.get("python")
    allowed = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    for where, step in _python_calls(skill):
        entry = next((e for e in allowed if (e.get("module"), e.get("function")) == (step.module, step.function)), None)
        if entry is None:
            message = f"{where} calls `{step.function}` of `{step.module}` without a permission"
            fix = f"Add `{{module: {step.module}, function: {step.function}}}` under `permissions.python`."
            yield document.finding(codes.NO_PERMISSION, message, "permissions", "python", fix=fix)
        elif step.mode == "unsafe" and entry.get("mode") != "unsafe":
            message = f"{where} is unsafe, but its permission is not"
            yield document.finding(
                codes.NO_PERMISSION, message, "permissions", "python", fix="Set `mode: unsafe` there."
            )
    called = {(step.module, step.function) for _, step in _python_calls(skill)}
    for index, entry in enumerate(allowed):
        place: tuple[str | int, ...] = ("permissions", "python", index)
        if (entry.get("module"), entry.get("function")) not in called:
            message = f"nothing calls `{entry.get('function')}` of `{entry.get('module')}`"
            yield document.finding(codes.UNUSED_REQUEST, message, *place, fix="Remove it.", severity="warning")
        if entry.get("mode") == "unsafe" and not (entry.get("reason") or entry.get("unsafe_reason")):
            message = f"`{entry.get('function')}` is unsafe python without a reason"
            yield document.finding(codes.NO_REASON, message, *place, fix="Add `reason:`.", severity="warning")


def _allowed(skill: Skill) -> set[str]:
    """Op kinds that some phase allows. The default ones ask for nothing beyond the default zones."""
    explicit = [phase.allowed_ops for phase in skill.phases.values() if phase.allowed_ops != DEFAULT_OPS]
    kinds = {kind for ops in explicit for kind in ops}
    if len(explicit) < len(skill.phases):
        kinds |= {*DEFAULT_OPS}
    return kinds | {str(step.op.get("kind")) for _, step in _steps(skill) if isinstance(step, RunOp)}


def _python_calls(skill: Skill) -> Iterator[tuple[str, PythonCall]]:
    """Every python step of a skill, with the words for where it stands."""
    return ((where, step) for where, step in _steps(skill) if isinstance(step, PythonCall))


def _steps(skill: Skill) -> Iterator[tuple[str, AnyStep]]:
    """Every step of a skill, those that are applied to items too."""
    places: list[tuple[str, tuple[Any, ...]]] = [
        (f"the preprocessor of `{name}`", phase.preprocessor) for name, phase in skill.phases.items()
    ]
    if skill.postprocessor:
        places.append(("the postprocessor", skill.postprocessor.steps))
    for where, steps in places:
        for step in steps:
            yield where, step.apply if isinstance(step, Iterate) else step
