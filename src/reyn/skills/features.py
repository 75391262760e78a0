"""Features that a skill uses: op kinds, and features that this version cannot execute.

The runtime refuses to start a skill with an unavailable feature; lint reports each at its line. A `run_op` step with
`on_error: skip` or `empty` fails when it is executed, and the skill continues. An unavailable op in
`allowed_ops` is not one of them: the phase runs, and the op is not offered to the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reyn.skills.values import Iterate, RunOp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.skills.values import AnyStep, Skill
    from reyn.vocabulary import Vocabulary


class Feature(NamedTuple):
    """A feature that a skill uses, and the key that asks for it.

    Attributes:
        name: The feature, for messages: ``a `python` step``.
        phase: The phase that uses it; `None` if skill.md does.
        path: The path of the key in the front matter.
        reason: Why no run can execute it.
        skill: The sub-skill that uses it; `None` for the skill itself.
        is_optional: Whether the skill continues without it: the step's `on_error` is `skip` or `empty`.
    """

    name: str
    phase: str | None
    path: tuple[str | int, ...]
    reason: str
    skill: str | None = None
    is_optional: bool = False

    def __str__(self) -> str:
        file = f"phase `{self.phase}`" if self.phase else "skill.md"
        return f"{self.name} in {file}" + (f" of skill `{self.skill}`" if self.skill else "")


def unavailable_features(skill: Skill, vocabulary: Vocabulary) -> list[Feature]:
    """Return every feature of a skill and its sub-skills that this version cannot execute."""
    features = list(_unavailable(skill, vocabulary))
    for name, sub_skill in skill.skills.items():
        features += [feature._replace(skill=name) for feature in _unavailable(sub_skill, vocabulary)]
    return features


def _unavailable(skill: Skill, vocabulary: Vocabulary) -> Iterator[Feature]:
    if skill.postprocessor is not None:
        yield from _unavailable_steps(skill.postprocessor.steps, None, ("postprocessor", "steps"), vocabulary)
    for name, phase in skill.phases.items():
        yield from _unavailable_steps(phase.preprocessor, name, ("preprocessor",), vocabulary)


def _unavailable_steps(
    steps: tuple[AnyStep, ...], phase: str | None, path: tuple[str | int, ...], vocabulary: Vocabulary
) -> Iterator[Feature]:
    for index, step in enumerate(steps):
        inner = step.apply if isinstance(step, Iterate) else step
        if isinstance(inner, RunOp):
            kind = str(inner.op.get("kind"))
            if vocabulary.is_reserved(kind):
                reason = f"the op `{kind}` is reserved for a later version"
                is_optional = not inner.on_error == step.on_error == "fail"
                yield Feature(f"a `run_op` step of `{kind}`", phase, (*path, index), reason, is_optional=is_optional)
