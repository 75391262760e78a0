"""A skill as values. Plain JSON all through, so that a copy can be kept, hashed and read back for ever."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Schema = dict[str, Any] | bool

DEFAULT_OPS = ("file", "ask_user")
DEFAULT_ACT_TURNS = 10
END = "end"


class ArtifactType(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named kind of artifact; `schema` is the schema of its `data`."""

    name: str
    schema: Schema
    description: str = ""


USER_MESSAGE = ArtifactType(
    "user_message",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "What the user said.",
)


class Phase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A processing unit: what it takes and what to do. It knows no other phase and no output."""

    name: str
    inputs: tuple[ArtifactType, ...]
    instructions: str
    role: str | None = None
    can_finish: bool = False
    allowed_ops: tuple[str, ...] = DEFAULT_OPS
    max_act_turns: int = DEFAULT_ACT_TURNS
    model_class: str | None = None
    preprocessor: tuple[Any, ...] = ()
    context: Any = None

    @property
    def input_name(self) -> str:
        return " | ".join(artifact.name for artifact in self.inputs)

    @property
    def input_schema(self) -> Schema:
        """The schema of the data that this phase takes; of a union, any of them."""
        if len(self.inputs) == 1:
            return self.inputs[0].schema
        return {"anyOf": [artifact.schema for artifact in self.inputs]}


class Skill(msgspec.Struct, frozen=True, omit_defaults=True):
    """A graph of phases and what comes out of it."""

    name: str
    entry: str
    phases: dict[str, Phase]
    graph: dict[str, tuple[str, ...]]
    final_output: ArtifactType
    description: str = ""
    final_output_description: str = ""
    finish_criteria: tuple[str, ...] = ()
    permissions: dict[str, Any] = {}
    required_credentials: tuple[str, ...] = ()
    postprocessor: dict[str, Any] | None = None
    search_hints: tuple[str, ...] = ()
    on_phase_failure: Literal["fail", "rollback"] = "fail"
    context: Any = None

    @property
    def final_output_schema(self) -> Schema:
        return self.final_output.schema
