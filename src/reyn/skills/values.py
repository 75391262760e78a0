"""A skill as values. Plain JSON all through, so that a copy can be kept, hashed and read back for ever."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from reyn.jsonschema import Schema

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


class Step(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="step"):
    """One deterministic step. `into` is where its result is bound; `on_error` what a failure means."""

    into: str | None = None
    on_error: Literal["fail", "skip", "empty"] = "fail"


class RunSkill(Step, frozen=True, tag="run_skill"):
    skill: str
    input: Any = None


class RunOp(Step, frozen=True, tag="run_op"):
    op: dict[str, Any]
    args_from: dict[str, str] = {}


class Iterate(Step, frozen=True, tag="iterate"):
    over: str
    apply: RunSkill | RunOp | PythonCall


class Validate(Step, frozen=True, tag="validate"):
    schema: Schema
    target: str = "data"


class LintPlan(Step, frozen=True, tag="lint_plan"):
    over: str = "data"


class PythonCall(Step, frozen=True, tag="python"):
    module: str
    function: str
    mode: Literal["safe", "unsafe"] = "safe"
    output_schema: Schema = True


AnyStep = RunSkill | RunOp | Iterate | Validate | LintPlan | PythonCall
STEP_VALUES: dict[str, type[Step]] = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyStep)}
"""The value of every step kind."""


class Postprocessor(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happens to the finish artifact before the caller gets it: steps, then a check against `output`."""

    output: ArtifactType
    steps: tuple[AnyStep, ...] = ()


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
    preprocessor: tuple[AnyStep, ...] = ()
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
    """A graph of phases and what comes out of it. `skills` are the ones it runs, directly or not, each without a table
    of its own; `modules` the sources it calls: all that can change a run is in here."""

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
    postprocessor: Postprocessor | None = None
    search_hints: tuple[str, ...] = ()
    on_phase_failure: Literal["fail", "rollback"] = "fail"
    context: Any = None
    skills: dict[str, Skill] = {}
    modules: dict[str, str] = {}

    @property
    def final_output_schema(self) -> Schema:
        return self.final_output.schema

    @property
    def result(self) -> ArtifactType:
        """What a caller gets: the final output, or what the postprocessor makes of it."""
        return self.postprocessor.output if self.postprocessor else self.final_output

    @property
    def entry_inputs(self) -> tuple[ArtifactType, ...]:
        """What a run of this skill takes; an entry that is another skill takes what that one takes."""
        return self.inputs_of(self.entry)

    def inputs_of(self, node: str) -> tuple[ArtifactType, ...]:
        """What a node of the graph takes."""
        if is_skill_node(node):
            # Skills are kept once, in one table: the ones that another runs are found here, too.
            return msgspec.structs.replace(self.skills[skill_of(node)], skills=self.skills).entry_inputs
        return self.phases[node].inputs


def is_skill_node(node: str) -> bool:
    """Whether a node of the graph is another skill: `@name`, or `@name[isolated]`, `@name[shared]`."""
    return node.startswith("@")


def skill_of(node: str) -> str:
    return node[1:].partition("[")[0]
