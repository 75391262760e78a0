"""Convert the input of a caller into an artifact, and check that a skill can run, before a run starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.documents import nearest
from reyn.errors import InputInvalid, SkillUnsupported
from reyn.journal import check_json
from reyn.jsonschema import compile_schema, lenient
from reyn.skills.step_types import PlacedStep, RunOp
from reyn.skills.values import USER_MESSAGE, ArtifactType, Skill

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.vocabulary import Vocabulary

_LISTED_FIELDS = 8
"""The number of fields that a hint lists."""


def to_artifact(value: Any, skill: Skill, *, strict: bool = False, node: str | None = None) -> dict[str, Any]:
    """Return an input as an artifact.

    Text is a `user_message`. An object with `type` and `data` is an artifact. Any other object is the data of the
    input type of the node.

    Args:
        value: The input; `None` is an empty object.
        skill: The skill that takes it.
        strict: Whether required fields are required at every depth.
        node: The node that takes it; by default the entry.

    Raises:
        InputInvalid: The node does not accept the input.
    """
    node = node or skill.entry
    inputs = skill.inputs_of(node)
    if value is None and (error := _data_error({}, inputs[0], strict=strict)):
        raise InputInvalid(
            f"skill `{skill.name}` needs an input of type `{_type_names(inputs)}`: {error.removeprefix('data: ')}",
            hint=_hint(inputs),
        )
    if value is None:
        value = {}
    if isinstance(value, str):
        artifact: dict[str, Any] = {"type": USER_MESSAGE.name, "data": {"text": value}}
    elif isinstance(value, dict) and value.keys() >= {"type", "data"} and isinstance(value["type"], str):
        artifact = value
        if extra := value.keys() - {"type", "data"}:
            names = ", ".join(f"`{name}`" for name in sorted(map(str, extra)))
            raise InputInvalid(
                f"an artifact has only `type` and `data`; the input also has {names}", hint=_hint(inputs)
            )
    elif isinstance(value, dict) and len(inputs) == 1:
        artifact = {"type": inputs[0].name, "data": value}
    elif isinstance(value, dict):
        raise InputInvalid(
            f"phase `{node}` accepts several types (`{_type_names(inputs)}`); the input does not name one",
            hint=_hint(inputs),
        )
    else:
        raise InputInvalid(
            f"the input is of type {type(value).__name__}; a run takes text or a JSON object", hint=_hint(inputs)
        )
    _check(artifact, node, inputs, strict=strict)
    return artifact


def _check(artifact: dict[str, Any], node: str, inputs: tuple[ArtifactType, ...], *, strict: bool) -> None:
    try:
        check_json(artifact)
    except ValueError as invalid:
        raise InputInvalid(f"the input is not JSON: {invalid}") from invalid
    if artifact["type"] not in [member.name for member in inputs]:
        text = "plain text, " if artifact["type"] == USER_MESSAGE.name else ""
        raise InputInvalid(
            f"the input is {text}of type `{artifact['type']}`; phase `{node}` accepts `{_type_names(inputs)}`",
            hint=_hint(inputs),
        )
    member = next(candidate for candidate in inputs if candidate.name == artifact["type"])
    if error := _data_error(artifact["data"], member, strict=strict):
        raise InputInvalid(
            f"the input is not a valid `{artifact['type']}`: {error}", hint=_hint((member,), artifact["data"])
        )


def _data_error(data: Any, member: ArtifactType, *, strict: bool) -> str:
    """Return why data is not valid for a type; empty if it is."""
    schema = member.schema if strict else lenient(member.schema)
    error = compile_schema(schema).first_error(data)
    return "" if error is None else f"{error.path('data')}: {error.message}"


def _hint(inputs: tuple[ArtifactType, ...], data: Any = None) -> str:
    """Return how to write an input of the types that a node accepts, and the likely typo in rejected data."""
    if len(inputs) > 1:
        names = " or ".join(f"`{member.name}`" for member in inputs)
        return f'Pass {{"type": …, "data": …}} with the type {names}.'
    [member] = inputs
    if member.name == USER_MESSAGE.name:
        return "Pass text."
    schema = member.schema if isinstance(member.schema, dict) else {}
    required = schema.get("required", [])
    fields = [f"`{name}` (required)" if name in required else f"`{name}`" for name in schema.get("properties", {})]
    listed = ", ".join(fields[:_LISTED_FIELDS]) + (", …" if len(fields) > _LISTED_FIELDS else "")
    typo = "".join(f"`{name}`: {guess} " for name, guess in _typos(data, member)[:1])
    return f"{typo}Pass a JSON object with the fields of `{member.name}`{f': {listed}' if listed else ''}."


def unknown_field_warnings(artifact: dict[str, Any], skill: Skill) -> tuple[str, ...]:
    """Return a warning for each field of an input that resembles a declared field which the input lacks.

    A schema without `additionalProperties: false` accepts such a field, and the value is lost if it is a typo.
    """
    member = next(
        (artifact_type for artifact_type in skill.entry_inputs if artifact_type.name == artifact["type"]),
        None,
    )
    return tuple(
        f"the input has the field `{name}`, which `{artifact['type']}` does not declare; {guess}"
        for name, guess in (_typos(artifact["data"], member) if member is not None else ())
    )


def _typos(data: Any, member: ArtifactType) -> list[tuple[str, str]]:
    """Return the undeclared fields that resemble a declared one which is absent, each with the suggestion."""
    declared = member.schema.get("properties", {}) if isinstance(member.schema, dict) else {}
    if not declared or not isinstance(data, dict):
        return []
    absent = [name for name in declared if name not in data]
    guesses = [(name, nearest(name, absent)) for name in data if name not in declared]
    return [(name, guess) for name, guess in guesses if guess]


def _type_names(inputs: tuple[ArtifactType, ...]) -> str:
    return " | ".join(artifact.name for artifact in inputs)


def missing_class_warnings(skill: Skill, settings: RunSettings) -> tuple[str, ...]:
    """Return a warning for each model class that a phase requests and the configuration does not define."""
    requested = {phase.model_class: name for name, phase in skill.phases.items() if phase.model_class}
    return tuple(
        f"phase `{name}` requests model class `{model_class}`, which is not configured; the run's own model is used"
        for model_class, name in requested.items()
        if model_class not in settings.classes
    )


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
    """Return every feature of a skill and its sub-skills that this version cannot execute.

    A `run_op` step with `on_error: skip` or `empty` fails when it is executed, and the skill continues. An unavailable
    op in `allowed_ops` is not one of them: the phase runs, and the op is not offered to the model.
    """
    return [
        feature
        for name, member in ((None, skill), *skill.skills.items())
        for placed in member.steps
        if (feature := _unavailable(placed, name, vocabulary))
    ]


def _unavailable(placed: PlacedStep, skill: str | None, vocabulary: Vocabulary) -> Feature | None:
    applied = placed.applied
    kind = str(applied.op.get("kind")) if isinstance(applied, RunOp) else ""
    spec = vocabulary.op(kind)
    if spec is None or spec.is_available:
        return None
    reason = f"the op `{kind}` is {spec.why_unavailable}{f'; {spec.advice}' if spec.advice else ''}"
    is_optional = not applied.on_error == placed.step.on_error == "fail"
    return Feature(f"a `run_op` step of `{kind}`", placed.phase, placed.path, reason, skill, is_optional)


def check_supported(skill: Skill, vocabulary: Vocabulary) -> None:
    """Check that this version can execute every feature that a skill cannot continue without.

    Raises:
        SkillUnsupported: it cannot; the message names each feature.
    """
    features = [feature for feature in unavailable_features(skill, vocabulary) if not feature.is_optional]
    if features:
        names = "; ".join(f"{feature} ({feature.reason})" for feature in features)
        raise SkillUnsupported(f"skill `{skill.name}` uses unsupported features: {names}")
