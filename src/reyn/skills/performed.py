"""What a skill asks for that this version reads, checks and pins, but does not perform. Shrinks with every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.skills.values import Iterate, PythonCall, RunOp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.skills.values import AnyStep, Skill
    from reyn.vocabulary import Vocabulary


def unperformed(skill: Skill, vocabulary: Vocabulary) -> list[str]:
    """Each as words that name the place, those of the skills that it runs, too."""
    asks = list(_asks(skill, vocabulary))
    for name, inner in skill.skills.items():
        asks += [f"{words} of skill `{name}`" for words in _asks(inner, vocabulary)]
    return asks


def op_kinds_of(skill: Skill) -> frozenset[str]:
    """The op kinds that a skill, or a skill that it runs, may use."""
    found: set[str] = set()
    for one in (skill, *skill.skills.values()):
        lists = [phase.preprocessor for phase in one.phases.values()]
        lists += [one.postprocessor.steps] if one.postprocessor else []
        steps = [step.apply if isinstance(step, Iterate) else step for steps in lists for step in steps]
        found |= {kind for phase in one.phases.values() for kind in phase.allowed_ops}
        found |= {str(step.op.get("kind")) for step in steps if isinstance(step, RunOp)}
    return frozenset(found)


def _asks(skill: Skill, vocabulary: Vocabulary) -> Iterator[str]:
    if skill.context is not None:
        yield "`context` in skill.md"
    if skill.postprocessor is not None:
        yield from _steps(skill.postprocessor.steps, "the postprocessor", vocabulary)
    for name, phase in skill.phases.items():
        kinds = [kind for kind in phase.allowed_ops if _is_missing(kind, vocabulary)]
        if kinds:
            yield f"`allowed_ops: [{', '.join(kinds)}]` in phase `{name}`"
        if phase.context is not None:
            yield f"`context` in phase `{name}`"
        yield from _steps(phase.preprocessor, f"the preprocessor of `{name}`", vocabulary)


def _steps(steps: tuple[AnyStep, ...], place: str, vocabulary: Vocabulary) -> Iterator[str]:
    for step in steps:
        inner = step.apply if isinstance(step, Iterate) else step
        if isinstance(inner, PythonCall):
            yield f"a `python` step in {place}"
        elif isinstance(inner, RunOp) and _is_missing(str(inner.op.get("kind")), vocabulary):
            yield f"a `run_op` step of `{inner.op.get('kind')}` in {place}"


def _is_missing(kind: str, vocabulary: Vocabulary) -> bool:
    spec = vocabulary.op(kind)
    return spec is not None and not spec.is_available
