"""Front matter and steps as authors write them: their keys and types, and the check of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

import msgspec

from reyn.config.environments import EnvironmentName
from reyn.config.models import Effort
from reyn.config.values import HANDOFF_FIELDS, ContextChoice, HandoffSettings
from reyn.documents import Codes, Document, KeyPath, TrustClasses, check_keys, nearest, trust_classes, usable_keys
from reyn.errors import Finding, codes
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.secrets.handles import is_name
from reyn.skills.state_fields import StateField
from reyn.skills.step_types import STEP_TYPES, AnyStep, AskUser, PythonCall, RunOp, RunSkill
from reyn.skills.values import DEFAULT_ACT_TURNS, DEFAULT_OPS, ConversationSettings, MustAny, NodeSettings

FRONT_MATTER = Codes(unknown=codes.UNKNOWN_KEY, wrong=codes.WRONG_VALUE, missing=codes.MISSING_KEY)
"""The codes of findings about the keys of front matter and of steps."""

S = TypeVar("S", bound=msgspec.Struct)
NonNegative = Annotated[int, msgspec.Meta(ge=0)]
OnError = Literal["fail", "skip", "empty"]


class NodeSection(NodeSettings, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The settings of a node as they are written: its steps are parsed later, each with its position."""

    check: tuple[Any, ...] = ()


class SkillFrontMatter(msgspec.Struct, frozen=True):
    """Front matter of `skill.md`."""

    TRUST: ClassVar[TrustClasses] = trust_classes(
        plain="type name entry final_output description final_output_description finish_criteria graph search_hints "
        "on_phase_failure model_class routing environment",
        request="permissions required_credentials",
        section="postprocessor context nodes state",
    )

    type: Literal["skill"]
    name: str
    entry: str
    final_output: str
    description: str = ""
    final_output_description: str = ""
    finish_criteria: tuple[str, ...] = ()
    graph: dict[str, Any] = {}
    nodes: dict[str, NodeSection] = {}
    state: dict[str, StateField] = {}
    permissions: dict[str, Any] = {}
    required_credentials: tuple[str, ...] = ()
    postprocessor: dict[str, Any] | None = None
    search_hints: tuple[str, ...] = ()
    on_phase_failure: Literal["fail", "rollback"] = "fail"
    context: ContextChoice | None = None
    model_class: str | None = None
    routing: Any = None
    environment: EnvironmentName = ""


class PhaseFrontMatter(msgspec.Struct, frozen=True):
    """Front matter of a phase."""

    TRUST: ClassVar[TrustClasses] = trust_classes(
        plain="type name input role can_finish max_act_turns model_class effort reads requires_approval allowed_skills",
        request="allowed_ops",
        section="preprocessor context conversation must",
    )

    type: Literal["phase"]
    name: str
    input: str
    role: str | None = None
    can_finish: bool = False
    allowed_ops: tuple[str, ...] = DEFAULT_OPS
    max_act_turns: NonNegative = DEFAULT_ACT_TURNS
    model_class: str | None = None
    effort: Effort | None = None
    preprocessor: tuple[Any, ...] = ()
    context: ContextChoice | None = None
    reads: tuple[str, ...] = ()
    requires_approval: bool = False
    conversation: bool | ConversationSettings = False
    allowed_skills: tuple[str, ...] | None = None
    must: tuple[str, ...] | MustAny = ()


FORBIDDEN_IN_PHASE = {
    "output": "remove it: a phase's output is the input of the phase that the model chooses next",
    "next": "move it to `graph` in skill.md",
    "permissions": "move them to `permissions` in skill.md",
}
"""Keys that a phase must not have, with the fix for each."""


_SCHEMA = "write the schema to `artifacts/NAME.yaml`"
_INPUT = f"{_SCHEMA}, and name it in `input` of the phase that takes it"
_TEXT = "the instructions of a phase are the text below its front matter"
_TOOLS = "name the ops in `allowed_ops` of each phase"
_EDGES = "write the edges under `graph` in skill.md: `draft: [review]`"
_OF_BOTH = {
    **dict.fromkeys(("fields", "properties", "schema", "parameters", "arguments"), _INPUT),
    **dict.fromkeys(("input_schema", "input_type", "inputs"), _INPUT),
    **dict.fromkeys(("instructions", "prompt", "system_prompt"), _TEXT),
    **dict.fromkeys(("tools", "allowed-tools", "allowed_tools"), _TOOLS),
    **dict.fromkeys(("edges", "transitions", "flow", "next_phases"), _EDGES),
    "model": "name an entry of `models` in reyn.yaml in `model_class`",
}
FOREIGN_IN_PHASE = {
    **_OF_BOTH,
    **dict.fromkeys(
        ("output_schema", "outputs", "output_type"), "remove it: a phase's output is the input of the next"
    ),
    **dict.fromkeys(("goto", "then", "on_success"), _EDGES),
}
"""Keys that phases of other programs have, with the fix for each."""
FOREIGN_IN_SKILL = {
    **_OF_BOTH,
    **dict.fromkeys(("output", "output_schema", "outputs"), f"{_SCHEMA}, and name it in `final_output`"),
    **dict.fromkeys(("phases", "steps"), "write each phase to `phases/NAME.md`, and the order under `graph`"),
    **dict.fromkeys(("start", "initial", "entry_phase", "entry_point"), "name the first phase in `entry`"),
    "input": "name it in `input` of the entry phase",
}
"""Keys that skills of other programs have, with the fix for each."""


def foreign_keys(shape: type[msgspec.Struct]) -> dict[str, str]:
    """Return the keys of other programs for front matter of a shape, with the fix for each."""
    return {SkillFrontMatter: FOREIGN_IN_SKILL, PhaseFrontMatter: FOREIGN_IN_PHASE}.get(shape, {})


class PostprocessorSection(msgspec.Struct, frozen=True):
    """`postprocessor` of skill.md; `output_schema` is an artifact name or an inline schema of the data."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="output_schema output_name output_description", section="steps")

    output_schema: str | dict[str, Any]
    output_name: str | None = None
    output_description: str = ""
    steps: tuple[Any, ...] = ()


class IterateArguments(msgspec.Struct, frozen=True):
    """Arguments of `iterate`; the step under `apply` is parsed separately."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="over into on_error concurrency", section="apply")

    over: str
    apply: dict[str, Any]
    into: str | None = None
    on_error: OnError = "fail"
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1


STEP_ARGUMENTS: dict[str, type[msgspec.Struct]] = dict(STEP_TYPES) | {"iterate": IterateArguments}
"""The arguments of every step kind. Except for `iterate`, they are the fields of the step's value."""


def step_lists(value: Any) -> list[tuple[KeyPath, list[Any]]]:
    """Return every list of steps in the front matter of a file, with its path."""
    keys = value if isinstance(value, dict) else {}
    postprocessor = keys.get("postprocessor")
    steps = postprocessor.get("steps") if isinstance(postprocessor, dict) else None
    lists = ((("preprocessor",), keys.get("preprocessor")), (("postprocessor", "steps"), steps))
    return [(path, found) for path, found in lists if isinstance(found, list)]


def read_front_matter(
    document: Document, shape: type[S], forbidden: Mapping[str, str]
) -> tuple[S | None, list[Finding]]:
    """Check front matter against its struct.

    Args:
        document: The front matter.
        shape: The struct.
        forbidden: Keys that it must not have, with the fix for each.

    Returns:
        The valid keys, or `None` if a required one is invalid, and every finding.
    """
    keys = document.value if isinstance(document.value, dict) else {}
    findings: list[Finding] = []
    ignore = {*forbidden, *(key for key in keys if key.startswith("imported_"))}
    if isinstance(keys.get("context"), dict):
        findings += _context_findings(document.part("context"))
        ignore.add("context")
    findings += check_keys(document, shape, FRONT_MATTER, ignore=ignore, foreign=foreign_keys(shape))
    findings += credential_findings(document)
    for key in forbidden.keys() & keys.keys():
        message = f"key `{key}` is not allowed in a phase"
        findings.append(document.finding(codes.FORBIDDEN_KEY, message, key, fix=forbidden[key]))
    usable = usable_keys(document, shape)
    return None if usable is None else msgspec.convert(usable, shape), findings


ALL_CREDENTIALS = "*"
"""In `required_credentials`: the secrets that the run above may use."""


def credential_findings(document: Document) -> list[Finding]:
    """Report entries of `required_credentials` that are neither the name of one secret nor `*`."""
    names = document.value.get("required_credentials") if isinstance(document.value, dict) else None
    return [
        document.finding(
            codes.WRONG_VALUE,
            f"`{name}` is not the name of a secret",
            "required_credentials",
            index,
            fix="name each secret: a capital letter, then capital letters, digits and `_`",
        )
        for index, name in enumerate(names if isinstance(names, list) else ())
        if isinstance(name, str) and name != ALL_CREDENTIALS and not is_name(name)
    ]


def _context_findings(part: Document) -> list[Finding]:
    """Check a `context` mapping; report each unknown handoff field at its place."""
    findings: list[Finding] = []
    fields = part.value.get("handoff_fields")
    for index, name in enumerate(fields if isinstance(fields, list) else ()):
        if name not in HANDOFF_FIELDS:
            fix = nearest(str(name), HANDOFF_FIELDS) or f"the fields are {', '.join(HANDOFF_FIELDS)}"
            message = f"no handoff field `{name}`"
            findings.append(part.finding(codes.UNKNOWN_HANDOFF_FIELD, message, "handoff_fields", index, fix=fix))
    return findings + check_keys(part, HandoffSettings, FRONT_MATTER, ignore=("handoff_fields",) if findings else ())


_APPLICABLE = ("run_op", "run_skill", "python", "ask_user")
_SHORT_FORMS = {"expression": "condition"}
"""The only argument of a step that is written as a text."""
_SCHEMA_KEYS = {"validate": "schema", "python": "output_schema", "ask_user": "schema"}


def parse_steps(document: Document) -> tuple[dict[int, AnyStep], list[Finding]]:
    """Parse the list of steps in a part of a file.

    Returns:
        The valid steps by their index in the list, and every finding.
    """
    steps: dict[int, AnyStep] = {}
    findings: list[Finding] = []
    for index in range(len(document.value)):
        step, step_findings = _parse(document.part(index))
        findings += step_findings
        if step is not None:
            steps[index] = step
    return steps, findings


def invalid_step(step: Any) -> AnyStep | None:
    """Return a step that binds anything at the `into` of one that could not be parsed; `None` if that is unreadable."""
    arguments = next(iter(step.values()), None) if isinstance(step, dict) and len(step) == 1 else None
    into = arguments.get("into") if isinstance(arguments, dict) else None
    return PythonCall(module="", function="", into=into) if isinstance(into, str) else None


def _parse(document: Document) -> tuple[AnyStep | None, list[Finding]]:
    kind, findings = _kind_of(document)
    if kind is None:
        return None, findings
    arguments = document.part(kind)
    if arguments.value is None:
        arguments = msgspec.structs.replace(arguments, value={})
    if kind in _SHORT_FORMS and isinstance(arguments.value, str):
        arguments = msgspec.structs.replace(arguments, value={_SHORT_FORMS[kind]: arguments.value})
    shape = STEP_ARGUMENTS[kind]
    findings = check_keys(arguments, shape, FRONT_MATTER)
    usable = usable_keys(arguments, shape)
    if kind in _SCHEMA_KEYS and isinstance(arguments.value, dict) and _SCHEMA_KEYS[kind] in arguments.value:
        findings += _check_schema(arguments, _SCHEMA_KEYS[kind])
    if usable is None:
        return None, findings
    if usable.get("on_error") == "result" and kind != "run_op":
        message = f"`on_error: result` needs the result of an op; `{kind}` has none"
        fix = "write `fail`, `skip` or `empty`"
        return None, [*findings, arguments.finding(codes.BAD_STEP, message, "on_error", fix=fix)]
    if kind == "iterate":
        inner, inner_findings = _parse(arguments.part("apply"))
        findings += inner_findings
        if inner is None:
            return None, findings
        if not isinstance(inner, RunOp | RunSkill | PythonCall | AskUser):
            kinds = ", ".join(f"`{name}`" for name in _APPLICABLE)
            return None, [*findings, arguments.finding(codes.BAD_STEP, f"`apply` must be one of {kinds}", "apply")]
        if usable.get("concurrency", 1) > 1 and not isinstance(inner, RunSkill):
            message = "`concurrency` needs `apply: {run_skill: …}`; other steps run one after the other"
            return None, [*findings, arguments.finding(codes.BAD_STEP, message, "concurrency")]
        usable["apply"] = inner
    return cast("AnyStep", STEP_TYPES[kind](**usable)), findings


def _check_schema(arguments: Document, key: str) -> list[Finding]:
    schema = arguments.value[key]
    if not isinstance(schema, dict | bool):
        return []  # `check_keys` has reported the type
    try:
        compile_schema(schema)
    except SchemaInvalid as error:
        return [arguments.finding(error.code, f"invalid JSON Schema: {error}", key, *error.place)]
    return []


def _kind_of(document: Document) -> tuple[str | None, list[Finding]]:
    if not isinstance(document.value, dict) or len(document.value) != 1:
        message = "expected a step: a mapping with one key, the step's kind"
        return None, [document.finding(codes.BAD_STEP, message, fix="write `- python: {…}`")]
    [kind] = document.value
    if kind not in STEP_ARGUMENTS:
        return None, [
            document.finding(codes.BAD_STEP, f"unknown step `{kind}`", kind, fix=nearest(kind, STEP_ARGUMENTS))
        ]
    return kind, []
