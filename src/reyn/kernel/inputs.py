"""What a caller hands to a run becomes an artifact that the entry phase takes, or an error before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.errors import InputInvalid, SkillUnsupported
from reyn.journal import check_json
from reyn.jsonschema import compile_schema, lenient
from reyn.skills import USER_MESSAGE
from reyn.skills.features import unavailable_features

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.skills import Skill
    from reyn.skills.values import ArtifactType
    from reyn.vocabulary import Vocabulary


def to_artifact(given: Any, skill: Skill, *, strict: bool = False, node: str | None = None) -> dict[str, Any]:
    """Text is a `user_message`; an object with `type` and `data` is an artifact; any other object is the data of the
    type that the entry phase takes, or the `node` that is named."""
    node = node or skill.entry
    inputs = skill.inputs_of(node)
    if given is None:
        given = {}
    if isinstance(given, str):
        artifact: dict[str, Any] = {"type": USER_MESSAGE.name, "data": {"text": given}}
    elif isinstance(given, dict) and given.keys() >= {"type", "data"} and isinstance(given["type"], str):
        artifact = given
        if extra := given.keys() - {"type", "data"}:
            names = ", ".join(f"`{name}`" for name in sorted(map(str, extra)))
            raise InputInvalid(f"beside `type` and `data` the input has {names}")
    elif isinstance(given, dict) and len(inputs) == 1:
        artifact = {"type": inputs[0].name, "data": given}
    elif isinstance(given, dict):
        raise InputInvalid(f"the phase `{node}` takes `{_named(inputs)}`: say which with `type` and `data`")
    else:
        raise InputInvalid(f"the input is a {type(given).__name__}; a run takes text or a JSON object")
    _check(artifact, node, inputs, strict=strict)
    return artifact


def _check(artifact: dict[str, Any], node: str, inputs: tuple[ArtifactType, ...], *, strict: bool) -> None:
    try:
        check_json(artifact)
    except ValueError as error:
        raise InputInvalid(f"the input is not JSON: {error}") from error
    taken = {member.name: member.schema for member in inputs}
    if artifact["type"] not in taken:
        raise InputInvalid(
            f"the input is a `{artifact['type']}`, but the entry phase `{node}` takes `{_named(inputs)}`",
            hint=f"Give a JSON object with the data of `{inputs[0].name}`, or one with `type` and `data`.",
        )
    schema = taken[artifact["type"]]
    wrong = compile_schema(schema if strict else lenient(schema)).first_error(artifact["data"])
    if wrong is not None:
        raise InputInvalid(f"the input does not fit `{artifact['type']}`: {wrong.path('data')}: {wrong.message}")


def _named(inputs: tuple[ArtifactType, ...]) -> str:
    return " | ".join(artifact.name for artifact in inputs)


def unnamed_classes(skill: Skill, settings: RunSettings) -> tuple[str, ...]:
    """A warning for phases that ask for a class of models that the operator has not named."""
    asked = {phase.model_class: name for name, phase in skill.phases.items() if phase.model_class}
    return tuple(
        f"phase `{name}` asks for a model of class `{kind}`, which reyn.yaml does not name; the run's own is asked"
        for kind, name in asked.items()
        if kind not in settings.classes
    )


def check_supported(skill: Skill, vocabulary: Vocabulary) -> None:
    """Check that this version can execute every feature of a skill.

    Raises:
        SkillUnsupported: it cannot; the message names each feature.
    """
    features = unavailable_features(skill, vocabulary)
    if features:
        names = "; ".join(f"{feature} ({feature.reason})" for feature in features)
        raise SkillUnsupported(f"skill `{skill.name}` uses unavailable features: {names}")
