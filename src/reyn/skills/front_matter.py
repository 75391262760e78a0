"""Keys and types of front matter and of step arguments, as authors write them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from reyn.config.values import ContextChoice
from reyn.skills.values import DEFAULT_ACT_TURNS, DEFAULT_OPS, STEP_TYPES, ConversationSettings

NonNegative = Annotated[int, msgspec.Meta(ge=0)]
OnError = Literal["fail", "skip", "empty"]


class SkillFrontMatter(msgspec.Struct, frozen=True):
    """Front matter of `skill.md`."""

    type: Literal["skill"]
    name: str
    entry: str
    final_output: str
    description: str = ""
    final_output_description: str = ""
    finish_criteria: tuple[str, ...] = ()
    graph: dict[str, tuple[str, ...] | dict[str, str | None]] = {}
    permissions: dict[str, Any] = {}
    required_credentials: tuple[str, ...] = ()
    postprocessor: dict[str, Any] | None = None
    search_hints: tuple[str, ...] = ()
    on_phase_failure: Literal["fail", "rollback"] = "fail"
    context: ContextChoice | None = None
    model_class: str | None = None
    routing: Any = None


class PhaseFrontMatter(msgspec.Struct, frozen=True):
    """Front matter of a phase."""

    type: Literal["phase"]
    name: str
    input: str
    role: str | None = None
    can_finish: bool = False
    allowed_ops: tuple[str, ...] = DEFAULT_OPS
    max_act_turns: NonNegative = DEFAULT_ACT_TURNS
    model_class: str | None = None
    preprocessor: tuple[Any, ...] = ()
    context: ContextChoice | None = None
    reads: tuple[str, ...] = ()
    requires_approval: bool = False
    conversation: bool | ConversationSettings = False
    allowed_skills: tuple[str, ...] | None = None


FORBIDDEN_IN_PHASE = {
    "output": "remove it: a phase's output is the input of the phase that the model chooses next",
    "next": "move it to `graph` in skill.md",
    "permissions": "move them to `permissions` in skill.md",
}
"""Keys that a phase must not have, with the fix for each."""


class PostprocessorSection(msgspec.Struct, frozen=True):
    """`postprocessor` of skill.md; `output_schema` is an artifact name or an inline schema of the data."""

    output_schema: str | dict[str, Any]
    output_name: str | None = None
    output_description: str = ""
    steps: tuple[Any, ...] = ()


class IterateArguments(msgspec.Struct, frozen=True):
    """Arguments of `iterate`; the step under `apply` is parsed separately."""

    over: str
    apply: dict[str, Any]
    into: str | None = None
    on_error: OnError = "fail"
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1


STEP_ARGUMENTS: dict[str, type[msgspec.Struct]] = dict(STEP_TYPES) | {"iterate": IterateArguments}
"""The arguments of every step kind. Except for `iterate`, they are the fields of the step's value."""
