"""Rules on expressions and paths in steps: expressions that are not valid, and values that an op or a skill rejects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from reyn.errors import codes
from reyn.expressions import has_expressions
from reyn.expressions.types import (
    ANY,
    Type,
    constant,
    kind_names,
    object_of,
    of_schema,
    possible_values,
    union,
    words_for,
)
from reyn.lint.decisions import ValueMisfit, constant_condition, expression_findings, misfit_finding, misfits
from reyn.skills.decisions import is_readable
from reyn.skills.flow import is_data_path, schema_at
from reyn.skills.step_expressions import StepList, checks_of_node, compile_step, schemas_before
from reyn.skills.step_types import AskUser, RunOp, RunSkill
from reyn.skills.values import USER_MESSAGE, ArtifactType

if TYPE_CHECKING:
    from reyn.documents import Document, KeyPath
    from reyn.errors import Finding
    from reyn.jsonschema import Schema
    from reyn.skills import LoadResult, Skill
    from reyn.skills.step_expressions import StepTemplate
    from reyn.skills.step_types import AnyStep, PlacedStep
    from reyn.vocabulary import Vocabulary


def values_of_steps(skill: Skill, loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report expressions in steps that are not valid, and values that the op or the skill of a step does not take."""
    is_whole = all(is_readable(skill, node) for node in skill.graph)
    for placed in skill.steps:
        if not (is_whole if placed.phase is None else is_readable(skill, placed.phase)):
            continue
        steps, index = _list_of(skill, placed), int(placed.path[-1])
        if index >= len(steps.steps) or not steps.inputs:
            continue
        document = loaded.document(placed.phase)
        found = compile_step(skill, steps, index)
        kinds = [str(placed.applied.__struct_config__.tag)]
        path = (*placed.path, *(("iterate", "apply") if placed.applied is not placed.step else ()), *kinds)
        if found is not None:
            yield from expression_findings(document, path, found.problems)
            if found.condition is not None:
                yield from constant_condition(document, (*path, "condition"), found.condition)
            if found.problems:
                continue
        if not isinstance(placed.applied, RunOp | RunSkill | AskUser):
            continue
        values = _Values(skill, [schema for _, schema in schemas_before(skill, steps, index)], found)
        for one in _wrong_values(values, placed.applied, path, document, vocabulary):
            yield replace(one, severity="warning") if _goes_on(placed) else one


def _goes_on(placed: PlacedStep) -> bool:
    """Return whether the skill goes on if a step fails."""
    return not {placed.applied.on_error, placed.step.on_error}.isdisjoint(("skip", "empty"))


def _list_of(skill: Skill, placed: PlacedStep) -> StepList:
    """Return the list of a step, with the types of the artifacts before it."""
    if placed.phase is not None:
        return StepList(skill.phases[placed.phase].inputs, skill.phases[placed.phase].preprocessor)
    if placed.path[0] == "nodes":
        return checks_of_node(skill, str(placed.path[1]))
    return StepList((skill.final_output,), skill.postprocessor.steps if skill.postprocessor else ())


class _Values(NamedTuple):
    """What is known about the values that a step gives to what it runs.

    Attributes:
        skill: The skill.
        schemas: The schemas of all values that the step reads, for each type that can arrive.
        template: The texts of the step with expressions, if it has any.
    """

    skill: Skill
    schemas: Sequence[Schema]
    template: StepTemplate | None

    def at(self, path: str) -> Type:
        """Return the type of the value at a path; empty if there is none."""
        return union(of_schema(schema_at(schema, path)) for schema in self.schemas)

    def of_arguments(self, step: RunOp) -> dict[tuple[str, str], Type]:
        """Return the types of the arguments that are no literals, by the key that has them and their name."""
        paths = {("args_from", name): self.at(path) for name, path in step.args_from.items()}
        if self.template is None:
            return paths
        [made] = self.template.data.type
        written = {name: one for name, one in step.op.items() if has_expressions(one) and name not in step.args_from}
        return {("op", name): made.fields[name]() for name in written} | paths

    def of_input(self, step: RunSkill) -> Type:
        """Return the type of the input of a sub-run."""
        value = step.input
        if value is None:
            return self.at("_iter.item" if self.at("_iter") else "data")
        if not isinstance(value, dict):
            return self._of_input(value, ANY if self.template is None else self.template.data.type)
        made: Mapping[str, Any] = {} if self.template is None else self.template.data.type[0].fields
        fields = {name: self._of_input(one, made[name]() if made else ANY) for name, one in value.items()}
        return object_of(fields)

    def _of_input(self, written: Any, rendered: Type) -> Type:
        if is_data_path(written):
            return self.at(written)
        return constant(written) if self.template is None else rendered


def _wrong_values(
    values: _Values, step: AnyStep, path: KeyPath, document: Document, vocabulary: Vocabulary
) -> Iterator[Finding]:
    match step:
        case RunOp():
            yield from _wrong_arguments(values, step, path, document, vocabulary)
        case RunSkill() if step.skill in values.skill.skills:
            inputs = values.skill.sub_skill(step.skill).entry_inputs
            for found in _wrong_input(values.of_input(step), inputs, step.input):
                yield misfit_finding(document, found, f"the input of `{step.skill}`: {found.message}", *path, "input")
        case AskUser() if values.template is not None:
            [kinds] = [kind_names(values.template.data.type)]
            if kinds and not kinds & {"string", "any"}:
                message = f"the question is {words_for(values.template.data.type)}, not a text"
                yield document.finding(
                    codes.BAD_EXPRESSION, message, *path, "question", fix="write words around the expression"
                )


def _wrong_arguments(
    values: _Values, step: RunOp, path: KeyPath, document: Document, vocabulary: Vocabulary
) -> Iterator[Finding]:
    """Report arguments from expressions and paths whose type the op does not take; literals are checked elsewhere."""
    spec = vocabulary.op(str(step.op.get("kind")))
    form = vocabulary.form_of(step.op) if spec is not None and spec.is_step else None
    if spec is None or form is None:
        return
    known = form.arguments["properties"]
    for (key, name), found in values.of_arguments(step).items():
        for one in misfits(step.op.get(name), found, known.get(name, True), (key, name)):
            fix = "write `${string(…)}`" if one.is_certain and "needs a text" in one.message else ""
            yield misfit_finding(document, one, f"`{name}` of `{spec.kind}`: {one.message}", *path, fix=fix)


def _wrong_input(found: Type, accepted: tuple[ArtifactType, ...], written: Any) -> Iterator[ValueMisfit]:
    """Yield why a skill does not take a value of a type.

    Text is a `user_message`; an object is an artifact, or the data of the only type that the skill accepts.
    """
    names = [one.name for one in accepted]
    takes = f"the skill takes `{' | '.join(names)}`"
    if len(found) != 1 or found[0].name == "any":
        return
    [only] = found
    if only.name == "string":
        if USER_MESSAGE.name not in names:
            yield ValueMisfit((), f"text is a `{USER_MESSAGE.name}`, but {takes}")
    elif only.name != "map":
        yield ValueMisfit((), f"it is {words_for(found)}; a run takes text or an object")
    elif {"type", "data"} <= only.fields.keys():
        yield from _wrong_artifact(only.fields["type"](), only.fields["data"](), accepted)
    elif len(accepted) == 1:
        data = written if isinstance(written, dict) else None
        yield from misfits(data, found, accepted[0].schema, is_lenient=True)
    elif only.extra is None:
        yield ValueMisfit((), f"it does not name its `type`, and {takes}")


def _wrong_artifact(type_: Type, data: Type, accepted: tuple[ArtifactType, ...]) -> Iterator[ValueMisfit]:
    """Yield why a skill does not take an artifact of these types."""
    possible = possible_values(type_)
    fitting = [one for one in accepted if one.name in possible]
    if possible and not fitting:
        takes = " | ".join(one.name for one in accepted)
        yield ValueMisfit((), f"it is a `{' | '.join(map(str, possible))}`, but the skill takes `{takes}`")
    elif len(fitting) == 1:
        yield from misfits(None, data, fitting[0].schema, is_lenient=True)
