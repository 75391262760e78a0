"""The shapes of front matter and steps as authors write them; keys and types are checked against these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from reyn.skills.values import DEFAULT_ACT_TURNS, DEFAULT_OPS, STEP_VALUES

NotNegative = Annotated[int, msgspec.Meta(ge=0)]
OnError = Literal["fail", "skip", "empty"]


class SkillFront(msgspec.Struct, frozen=True):
    """The front matter of `skill.md`."""

    type: Literal["skill"]
    name: str
    entry: str
    final_output: str
    description: str = ""
    final_output_description: str = ""
    finish_criteria: tuple[str, ...] = ()
    graph: dict[str, tuple[str, ...]] = {}
    permissions: dict[str, Any] = {}
    required_credentials: tuple[str, ...] = ()
    postprocessor: dict[str, Any] | None = None
    search_hints: tuple[str, ...] = ()
    on_phase_failure: Literal["fail", "rollback"] = "fail"
    context: Any = None
    routing: Any = None


class PhaseFront(msgspec.Struct, frozen=True):
    """The front matter of a phase."""

    type: Literal["phase"]
    name: str
    input: str
    role: str | None = None
    can_finish: bool = False
    allowed_ops: tuple[str, ...] = DEFAULT_OPS
    max_act_turns: NotNegative = DEFAULT_ACT_TURNS
    model_class: str | None = None
    preprocessor: tuple[Any, ...] = ()
    context: Any = None


FORBIDDEN_IN_PHASE = {
    "output": "The output is the input of the phase that is chosen next; the OS shows it to the model.",
    "next": "The order of phases belongs to `graph` in skill.md.",
    "permissions": "Permissions belong to skill.md.",
}


class PostprocessorFront(msgspec.Struct, frozen=True):
    """`postprocessor` of skill.md: `output_schema` is the name of an artifact, or a schema of the data."""

    output_schema: str | dict[str, Any]
    output_name: str | None = None
    output_description: str = ""
    steps: tuple[Any, ...] = ()


class IterateFront(msgspec.Struct, frozen=True):
    """`apply` is a step of its own, which is parsed separately."""

    over: str
    apply: dict[str, Any]
    into: str | None = None
    on_error: OnError = "fail"


STEP_FRONTS: dict[str, type[msgspec.Struct]] = dict(STEP_VALUES) | {"iterate": IterateFront}
"""The keys of every step kind: those of its value."""
