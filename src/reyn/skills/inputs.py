"""Convert the input of a caller into an artifact, and check that a skill can run, before a run starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.errors import InputInvalid, SkillUnsupported
from reyn.journal import check_json
from reyn.jsonschema import compile_schema, lenient
from reyn.skills.features import unavailable_features
from reyn.skills.values import USER_MESSAGE

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.skills.values import ArtifactType, Skill
    from reyn.vocabulary import Vocabulary


def to_artifact(value: Any, skill: Skill, *, strict: bool = False, node: str | None = None) -> dict[str, Any]:
    """Return the artifact that an input stands for.

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
        raise InputInvalid(f"skill `{skill.name}` needs an input, data of type `{_type_names(inputs)}`: {error}")
    if value is None:
        value = {}
    if isinstance(value, str):
        artifact: dict[str, Any] = {"type": USER_MESSAGE.name, "data": {"text": value}}
    elif isinstance(value, dict) and value.keys() >= {"type", "data"} and isinstance(value["type"], str):
        artifact = value
        if extra := value.keys() - {"type", "data"}:
            names = ", ".join(f"`{name}`" for name in sorted(map(str, extra)))
            raise InputInvalid(f"an artifact has only `type` and `data`; the input also has {names}")
    elif isinstance(value, dict) and len(inputs) == 1:
        artifact = {"type": inputs[0].name, "data": value}
    elif isinstance(value, dict):
        raise InputInvalid(
            f"phase `{node}` accepts several types (`{_type_names(inputs)}`); name one with `type` and `data`"
        )
    else:
        raise InputInvalid(f"the input is of type {type(value).__name__}; a run takes text or a JSON object")
    _check(artifact, node, inputs, strict=strict)
    return artifact


def _check(artifact: dict[str, Any], node: str, inputs: tuple[ArtifactType, ...], *, strict: bool) -> None:
    try:
        check_json(artifact)
    except ValueError as invalid:
        raise InputInvalid(f"the input is not JSON: {invalid}") from invalid
    if artifact["type"] not in [member.name for member in inputs]:
        raise InputInvalid(
            f"the input has type `{artifact['type']}`; phase `{node}` accepts `{_type_names(inputs)}`",
            hint=f"Pass a JSON object with the data of `{inputs[0].name}`, or one with `type` and `data`.",
        )
    member = next(one for one in inputs if one.name == artifact["type"])
    if error := _data_error(artifact["data"], member, strict=strict):
        raise InputInvalid(f"the input is not a valid `{artifact['type']}`: {error}")


def _data_error(data: Any, member: ArtifactType, *, strict: bool) -> str:
    """Return why data is not valid for a type; empty if it is."""
    schema = member.schema if strict else lenient(member.schema)
    error = compile_schema(schema).first_error(data)
    return "" if error is None else f"{error.path('data')}: {error.message}"


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


def check_supported(skill: Skill, vocabulary: Vocabulary) -> None:
    """Check that this version can execute every feature that a skill cannot continue without.

    Raises:
        SkillUnsupported: it cannot; the message names each feature.
    """
    features = [feature for feature in unavailable_features(skill, vocabulary) if not feature.is_optional]
    if features:
        names = "; ".join(f"{feature} ({feature.reason})" for feature in features)
        raise SkillUnsupported(f"skill `{skill.name}` uses unsupported features: {names}")


def is_conversation(skill: Skill) -> bool:
    """Whether the entry of a skill is a conversation, which can start with a history."""
    return skill.entry in skill.phases and skill.phases[skill.entry].conversation is not None
