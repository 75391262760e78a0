"""Rules about what a skill asks for: ops and python steps against the permissions it requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.documents import nearest
from reyn.skills import codes
from reyn.skills.values import DEFAULT_OPS, Iterate, PythonCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.errors import Finding
    from reyn.skills import Reading, Skill
    from reyn.vocabulary import Vocabulary

_FILE_KEYS = ("file.read", "file.write")


def unknown_permissions(reading: Reading, vocabulary: Vocabulary) -> Iterator[Finding]:
    document = reading.folder.front("skill.md")
    asked = document.value.get("permissions") if document and isinstance(document.value, dict) else None
    for key in asked if isinstance(asked, dict) else ():
        if document is not None and key not in vocabulary.permission_keys:
            fix = nearest(key, vocabulary.permission_keys)
            yield document.finding(codes.UNKNOWN_PERMISSION, f"unknown permission `{key}`", "permissions", key, fix=fix)


def missing_requests(reading: Reading, vocabulary: Vocabulary) -> Iterator[Finding]:
    skill = reading.skill
    for name, phase in skill.phases.items() if skill else ():
        document = reading.folder.front(f"phases/{name}.md")
        for index, kind in enumerate(phase.allowed_ops):
            spec = vocabulary.op(kind)
            needed = spec.permission if spec else None
            if skill and document and needed and needed not in skill.permissions:
                message = f"`{kind}` needs the permission `{needed}`, which skill.md does not request"
                fix = f"Add `{needed}:` under `permissions` in skill.md."
                yield document.finding(codes.NO_REQUEST, message, "allowed_ops", index, fix=fix)


def unused_requests(reading: Reading, vocabulary: Vocabulary) -> Iterator[Finding]:
    skill, document = reading.skill, reading.folder.front("skill.md")
    if skill is None or document is None:
        return
    used = {spec.permission for spec in vocabulary.ops if spec.kind in _allowed(skill)}
    if "file" in _allowed(skill):
        used |= {*_FILE_KEYS}
    if any(True for _ in _python_calls(skill)):
        used.add("python")
    for key in skill.permissions:
        if key in vocabulary.permission_keys and key not in used:
            message = f"`{key}` is requested, but nothing in the skill uses it"
            yield document.finding(
                codes.UNUSED_REQUEST, message, "permissions", key, fix="Remove it.", severity="warning"
            )


def python_steps(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    skill, document = reading.skill, reading.folder.front("skill.md")
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
    for index, entry in enumerate(allowed):
        if entry.get("mode") == "unsafe" and not (entry.get("reason") or entry.get("unsafe_reason")):
            place = ("permissions", "python", index)
            message = f"`{entry.get('function')}` is unsafe python without a reason"
            yield document.finding(codes.NO_REASON, message, *place, fix="Add `reason:`.", severity="warning")


def _allowed(skill: Skill) -> set[str]:
    """Op kinds that some phase allows. The default ones ask for nothing beyond the default zones."""
    explicit = [phase.allowed_ops for phase in skill.phases.values() if phase.allowed_ops != DEFAULT_OPS]
    kinds = {kind for ops in explicit for kind in ops}
    if len(explicit) < len(skill.phases):
        kinds |= {*DEFAULT_OPS}
    return kinds


def _python_calls(skill: Skill) -> Iterator[tuple[str, PythonCall]]:
    """Every python step of a skill, with the words for where it stands."""
    places: list[tuple[str, tuple[Any, ...]]] = [
        (f"the preprocessor of `{name}`", phase.preprocessor) for name, phase in skill.phases.items()
    ]
    if skill.postprocessor:
        places.append(("the postprocessor", skill.postprocessor.steps))
    for where, steps in places:
        for step in steps:
            inner = step.apply if isinstance(step, Iterate) else step
            if isinstance(inner, PythonCall):
                yield where, inner
