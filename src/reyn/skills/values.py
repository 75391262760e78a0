"""The skill language as frozen values.

Every value is plain JSON, so that a run can store, hash and read back its copy of a skill. Parsing and validation are
in `loader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec

from reyn.cells import InNotebook
from reyn.config.models import Effort
from reyn.config.values import ContextChoice
from reyn.documents import TrustClasses, trust_classes
from reyn.journal import Blob, ordered
from reyn.jsonschema import Schema
from reyn.skills.error_settings import NODE_ERROR, Retry
from reyn.skills.state_fields import StateField
from reyn.skills.step_types import AnyStep, PlacedStep, PythonCall, RunOp

DEFAULT_OPS = ("file", "ask_user")
DEFAULT_ACT_TURNS = 10
END = "end"
NodeKind = Literal["phase", "skill", "rules", "fan_out"]
"""What a visit of a node does: ask a model, run a skill, apply rules, or run branches."""
MAX_PARALLEL = 100
"""The maximum number of branches that execute at the same time."""
MIN_TOKENS = 200
"""The smallest `max_tokens` of a conversation."""
ABORT = "abort"
"""The choice that gives up. A phase cannot have this name."""


class ArtifactType(msgspec.Struct, frozen=True, omit_defaults=True):
    """An artifact type; `schema` describes its `data`."""

    name: str
    schema: Schema
    description: str = ""


USER_MESSAGE = ArtifactType(
    "user_message",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "What the user said.",
)


ERROR_TYPE = ArtifactType(
    NODE_ERROR,
    {
        "type": "object",
        "properties": {
            "error": {"type": "string"},
            "message": {"type": "string"},
            "code": {"type": "string"},
            "node": {"type": "string"},
            "attempts": {"type": "integer", "minimum": 1},
            "input": {
                "type": "object",
                "properties": {"type": {"type": "string"}, "data": {}},
                "required": ["type", "data"],
            },
        },
        "required": ["error", "message", "code", "node", "attempts", "input"],
    },
    "The error of a node, and what arrived at it.",
)
BUILT_IN_TYPES = {one.name: one for one in (USER_MESSAGE, ERROR_TYPE)}
"""The artifact types that need no file."""


class Postprocessor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Steps on the finish artifact; the result is validated against `output` and returned to the caller."""

    output: ArtifactType
    steps: tuple[AnyStep, ...] = ()


class ConversationSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A phase that keeps a transcript across its visits.

    Attributes:
        max_tokens: The size of the transcript above which older messages are replaced by a summary.
        stays_open: Whether the model cannot abort the run, and is asked for a reply without ops after rejected answers.
        transcript: The name of a transcript that all phases which name it share; empty for one of its own.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="max_tokens stays_open transcript")

    max_tokens: Annotated[int, msgspec.Meta(ge=MIN_TOKENS)] = 16_000
    stays_open: bool = False
    transcript: str = ""


class MustAny(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`must: {any: […]}` of a phase: one of several ops is enough."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="any")

    any: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class PhaseBranch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A branch that is a phase of the skill, run as a skill of that one phase with `output` as its final output."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="do output")

    do: str
    output: str


class Each(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`each` of a node: one branch for each item of a list.

    Attributes:
        items: The path of the list in the artifact that arrives.
        do: The branch: `@skill`, or a phase.
        output: The artifact type that a phase produces; a skill has its own.
        max_parallel: How many branches execute at the same time.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="in do output max_parallel")

    items: str = msgspec.field(name="in")
    do: str
    output: str = ""
    max_parallel: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARALLEL)] = 4


class Branch(NamedTuple):
    """A kind of branch of a node: its property in the joined artifact (empty for `each`), what it does, its output."""

    name: str
    do: str
    output: str


class NodeSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What skill.md says about a node of the graph.

    Attributes:
        fill: The fields of the node's artifact that ops fill, each with its source: `ops.file.write.path`.
        each: The branches of a fan-out over the items of a list.
        all: The branches of a fan-out to several skills or phases, by property of the joined artifact.
        joined: The type of the joined artifact.
        need: How many branches have to complete: `all`, `any` (one) or a number.
        check: Steps on the artifact that a visit proposes. A failure is a rejected answer; without a model, the visit
            fails.
        on_item_error: What the failure of a branch does: `fail` ends the others and the visit, `collect` leaves it out
            of the joined artifact and lists it under `errors`, `retry` runs it again before it fails.
        retry: How often a visit that fails is repeated.
        on_error: The node to which the run goes on after an error, by its name; `*` stands for all but `limit`.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(
        plain="fill need on_item_error as on_error", section="each all check retry"
    )

    fill: dict[str, str] = {}
    each: Each | None = None
    all: dict[str, str | PhaseBranch] = {}
    joined: str = msgspec.field(name="as", default="")
    need: Literal["all", "any"] | Annotated[int, msgspec.Meta(ge=1)] = "all"
    on_item_error: Literal["fail", "collect", "retry"] = "fail"
    check: tuple[AnyStep, ...] = ()
    retry: Retry | None = None
    on_error: dict[str, str] = {}

    @property
    def is_fan_out(self) -> bool:
        """Whether the node runs branches."""
        return self.each is not None or bool(self.all)

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The kinds of branches: one for `each`, all of `all`."""
        if self.each is not None:
            return (Branch("", self.each.do, self.each.output),)
        return tuple(
            Branch(name, one, "") if isinstance(one, str) else Branch(name, one.do, one.output)
            for name, one in self.all.items()
        )

    @property
    def max_parallel(self) -> int:
        """How many branches execute at the same time; those of `all` execute together."""
        return self.each.max_parallel if self.each is not None else max(1, len(self.all))


class GraphRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule of a node without a model: if the condition `when` holds (`None` for `else`), the run goes on at `to`.

    `artifact` is the type of the artifact that the rule makes from `data`; without it, what arrived goes on.
    """

    to: str
    when: str | None = None
    artifact: ArtifactType | None = None
    data: Any = None


class Phase(msgspec.Struct, frozen=True, omit_defaults=True):
    """One unit of work for the model: input types and instructions. It knows no other phase and no output."""

    name: str
    inputs: tuple[ArtifactType, ...]
    instructions: str
    role: str | None = None
    can_finish: bool = False
    allowed_ops: tuple[str, ...] = DEFAULT_OPS
    max_act_turns: int = DEFAULT_ACT_TURNS
    model_class: str | None = None
    effort: Effort | None = None
    preprocessor: tuple[AnyStep, ...] = ()
    context: ContextChoice | None = None
    reads: tuple[str, ...] = ()
    """Types of earlier artifacts, and fields of the state as `state.NAME`, that the phase sees besides its input."""
    requires_approval: bool = False
    conversation: ConversationSettings | None = None
    allowed_skills: tuple[str, ...] | None = None
    """Patterns of the names of the skills that the model may run; `None` allows all."""
    must: tuple[tuple[str, ...], ...] = ()
    """Ops without which a visit cannot end: of each group, one has to succeed. Names are op kinds or `kind.form`."""
    advice: str = ""
    """Advice about the tools of a Python function. It follows the instructions, also those that replace them."""

    @property
    def input_name(self) -> str:
        return " | ".join(artifact.name for artifact in self.inputs)

    @property
    def input_schema(self) -> Schema:
        """The schema of the input data; for a union, any of the member schemas."""
        if len(self.inputs) == 1:
            return self.inputs[0].schema
        return {"anyOf": [artifact.schema for artifact in self.inputs]}


class Skill(InNotebook, msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A graph of phases with its final output, and everything else that can affect a run.

    Attributes:
        edge_texts: When to choose each successor, by phase and successor, where the author wrote it.
        rules: The rules of nodes without a model, by node.
        conditions: When a successor is a candidate of the model, by phase and successor, where the author limits it.
        nodes: What else the author says about a node, by node.
        types: The artifact types that nodes and the state name: outputs of phases that are branches, joined artifacts,
            and those that the state follows.
        state: The fields of the state, by name.
        skills: Every sub-skill, direct or indirect, by name. Their own `skills` are empty.
        modules: Source code of the modules of python steps, by path.
        environment: The environment with packages for the python steps and programs of the skill; empty for none.
        function: The Python function that the skill was made from, as `module:name`; empty for a skill of files.
        checks_output: Whether the program that starts a run checks the final output, besides its schema.
    """

    name: str
    entry: str
    phases: dict[str, Phase]
    graph: dict[str, tuple[str, ...]]
    final_output: ArtifactType
    edge_texts: dict[str, dict[str, str]] = {}
    rules: dict[str, tuple[GraphRule, ...]] = {}
    conditions: dict[str, dict[str, str]] = {}
    nodes: dict[str, NodeSettings] = {}
    types: dict[str, ArtifactType] = {}
    state: dict[str, StateField] = {}
    description: str = ""
    final_output_description: str = ""
    finish_criteria: tuple[str, ...] = ()
    permissions: dict[str, Any] = {}
    required_credentials: tuple[str, ...] = ()
    postprocessor: Postprocessor | None = None
    search_hints: tuple[str, ...] = ()
    on_phase_failure: Literal["fail", "rollback"] = "fail"
    context: ContextChoice | None = None
    skills: dict[str, Skill] = {}
    modules: dict[str, str] = {}
    environment: str = ""
    function: str = ""
    checks_output: bool = False

    @cached_property
    def pinned(self) -> Blob:
        """The serialized copy that a run records. Its hash identifies the skill."""
        return Blob.of(ordered(self))

    @cached_property
    def op_kinds(self) -> frozenset[str]:
        """The op kinds that the skill or one of its sub-skills may use."""
        kinds: set[str] = set()
        for skill in (self, *self.skills.values()):
            steps = [placed.applied for placed in skill.steps]
            kinds |= {kind for phase in skill.phases.values() for kind in phase.allowed_ops}
            kinds |= {str(step.op.get("kind")) for step in steps if isinstance(step, RunOp)}
            kinds |= {"python" for step in steps if isinstance(step, PythonCall)}
        return frozenset(kinds)

    @cached_property
    def environments(self) -> tuple[str, ...]:
        """The names of the environments of the skill and of its sub-skills."""
        return tuple(sorted({one.environment for one in (self, *self.skills.values()) if one.environment}))

    @property
    def steps(self) -> Iterator[PlacedStep]:
        """Every step of the skill, with its place."""
        for name, phase in self.phases.items():
            for index, step in enumerate(phase.preprocessor):
                yield PlacedStep(name, ("preprocessor", index), step)
        for node, settings in self.nodes.items():
            for index, step in enumerate(settings.check):
                yield PlacedStep(None, ("nodes", node, "check", index), step)
        for index, step in enumerate(self.postprocessor.steps if self.postprocessor else ()):
            yield PlacedStep(None, ("postprocessor", "steps", index), step)

    @cached_property
    def has_open_input(self) -> bool:
        """Whether an input of the skill may have fields that its type does not declare."""
        schemas = [artifact.schema for artifact in self.entry_inputs]
        return not all(isinstance(one, dict) and one.get("additionalProperties") is False for one in schemas)

    @property
    def final_output_schema(self) -> Schema:
        return self.final_output.schema

    @property
    def result(self) -> ArtifactType:
        """The artifact type that a caller receives: the postprocessor's output, or the final output."""
        return self.postprocessor.output if self.postprocessor else self.final_output

    @property
    def entry_inputs(self) -> tuple[ArtifactType, ...]:
        """Artifact types that a run accepts as input."""
        return self.inputs_of(self.entry)

    @property
    def opens_conversation(self) -> bool:
        """Whether the skill starts with a phase that waits for further messages of the user."""
        return self.holds_open(self.entry)

    def holds_conversation(self, phase: str) -> bool:
        """Return whether a phase is a conversation, which can start with a history and whose visits the user paces."""
        return phase in self.phases and self.phases[phase].conversation is not None

    def holds_open(self, phase: str) -> bool:
        """Return whether a phase is a conversation that waits for further messages of the user."""
        return self.holds_conversation(phase) and phase in self.graph.get(phase, ())

    def node_kind(self, node: str) -> NodeKind:
        """Return what decides about a node."""
        if is_skill_node(node):
            return "skill"
        if node in self.rules:
            return "rules"
        return "fan_out" if node in self.nodes and self.nodes[node].is_fan_out else "phase"

    def fan_out(self, node: str) -> NodeSettings | None:
        """Return the settings of a node that runs branches; `None` for other nodes."""
        settings = self.nodes.get(node)
        return settings if settings is not None and settings.is_fan_out else None

    def filled_fields(self, node: str) -> dict[str, str]:
        """Return the fields of a node's artifact that ops fill, each with its source."""
        return self.nodes[node].fill if node in self.nodes else {}

    def result_of(self, name: str) -> ArtifactType | None:
        """Return the type of the result of a sub-skill; `None` for an unknown one."""
        return self.skills[name].result if name in self.skills else None

    def inputs_of(self, node: str) -> tuple[ArtifactType, ...]:
        """Return the artifact types that a node of the graph accepts."""
        if is_skill_node(node):
            return self.sub_skill(skill_of(node)).entry_inputs
        return self.phases[node].inputs

    def sub_skill(self, name: str) -> Skill:
        """Return a sub-skill. It has no table of its own, so that its sub-skills are looked up in this one."""
        return msgspec.structs.replace(self.skills[name], skills=self.skills)


def is_skill_node(node: str) -> bool:
    """Return whether a graph node is a sub-skill: `@name`, `@name[isolated]` or `@name[shared]`."""
    return node.startswith("@")


def skill_of(node: str) -> str:
    """Return the skill name of a sub-skill node."""
    return node[1:].partition("[")[0]
