"""The steps of a skill as frozen values: what a preprocessor, a postprocessor or a check executes without a model."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import msgspec

from reyn.documents import TrustClasses, trust_classes
from reyn.jsonschema import Schema


class Step(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="step"):
    """One deterministic step of a preprocessor or postprocessor.

    Attributes:
        into: The path at which the result is bound.
        on_error: `fail` fails the visit, `skip` leaves the artifact unchanged, `empty` binds `null`. `result`,
            of `run_op` alone, binds the result of an op that failed or was denied like any other.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="into on_error")

    into: str | None = None
    on_error: Literal["fail", "skip", "empty", "result"] = "fail"


class RunSkill(Step, frozen=True, tag="run_skill"):
    """Run another skill."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="skill input")

    skill: str
    input: Any = None


class RunOp(Step, frozen=True, tag="run_op"):
    """Execute one op."""

    TRUST: ClassVar[TrustClasses] = trust_classes(request="op", plain="args_from")

    op: dict[str, Any]
    args_from: dict[str, str] = {}


class AskUser(Step, frozen=True, tag="ask_user"):
    """Ask a person and bind the reply.

    `show` is the path of a value that the person sees with the question.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="question suggestions required schema show")

    question: Annotated[str, msgspec.Meta(min_length=1, max_length=4_000)]
    suggestions: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=400)], ...], msgspec.Meta(max_length=20)] = ()
    required: bool = True
    schema: dict[str, Any] | None = None
    show: str | None = None

    @property
    def response_schema(self) -> dict[str, Any]:
        """The schema of the answer: by default text, and `null` if the question may go unanswered."""
        schema = {"type": "string", "minLength": 1} if self.schema is None else self.schema
        return schema if self.required else {"anyOf": [schema, {"type": "null"}]}


class Iterate(Step, frozen=True, tag="iterate"):
    """Apply a step to every item of a list."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="over concurrency", section="apply")

    over: str
    apply: RunSkill | RunOp | PythonCall | AskUser
    concurrency: int = 1
    """Sub-runs that execute at the same time, if the step is `run_skill`."""


class Validate(Step, frozen=True, tag="validate"):
    """Validate a value against a schema."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="schema target")

    schema: Schema
    target: str = "data"


class CheckExpression(Step, frozen=True, tag="expression"):
    """Evaluate a condition, which has to be true.

    `message` says what is wrong if it is not; it may have expressions.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="condition message")

    condition: str
    message: str = ""


class LintPlan(Step, frozen=True, tag="lint_plan"):
    """Check the structure of a plan."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="over")

    over: str = "data"


class PythonCall(Step, frozen=True, tag="python"):
    """Call a function of the skill's own module."""

    TRUST: ClassVar[TrustClasses] = trust_classes(
        sandboxed="module function", request="mode", plain="output_schema reads"
    )

    module: str
    function: str
    mode: Literal["safe", "unsafe"] = "safe"
    output_schema: Schema = True
    reads: tuple[str, ...] = ()
    """The fields of the state that the function receives, each as `state.NAME`."""


AnyStep = RunSkill | RunOp | Iterate | Validate | CheckExpression | LintPlan | PythonCall | AskUser
STEP_TYPES: dict[str, type[Step]] = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyStep)}
"""The class of every step kind, by its name."""


class PlacedStep(NamedTuple):
    """A step of a skill: the phase, `None` for the postprocessor, and the path of the key in its front matter."""

    phase: str | None
    path: tuple[str | int, ...]
    step: AnyStep

    @property
    def applied(self) -> AnyStep:
        """The step that does the work: that of `apply` for `iterate`."""
        return self.step.apply if isinstance(self.step, Iterate) else self.step

    @property
    def location(self) -> str:
        """The list of steps, for messages."""
        if self.path[0] == "nodes":
            return f"the check of `{self.path[1]}`"
        return "the postprocessor" if self.phase is None else f"the preprocessor of `{self.phase}`"
