"""Render the plan of a skill into its files.

A plan is a JSON value that a model fills in: names, texts and lists instead of YAML and Markdown. Rendering is a pure
function. File names derive from names that are checked here, so no plan can name a path. What the loader and lint
check is left to them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from reyn.errors import SkillPlanInvalid
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.skills.files import to_front_matter, to_yaml
from reyn.skills.names import is_reserved_phase_name, is_valid_name, nfc
from reyn.skills.values import ABORT, END, USER_MESSAGE

MAX_TEXT = 2_000
"""The length of a text in an artifact, unless the plan has a JSON Schema for it."""
MAX_DRAFT_ITEMS = 20
_MAX_PROBLEMS = 20
_MAX_FILE_CHARS = 200_000

FieldType = Literal["text", "integer", "number", "boolean", "choice", "texts", "schema"]
Value = str | int | float | bool | list[str]


class FieldPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field of an artifact. `options` are those of a `choice`, `json_schema` the schema of type `schema`, as text."""

    name: str
    type: FieldType = "text"
    description: str = ""
    options: tuple[str, ...] = ()
    json_schema: str = ""
    required: bool = True


class ArtifactPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An artifact type."""

    name: str
    fields: tuple[FieldPlan, ...]
    description: str = ""


class EdgePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may follow a phase: another phase or `end`, and when to choose it."""

    to: str
    when: str = ""


class PhasePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A phase and what may follow it."""

    name: str
    instructions: str
    inputs: tuple[str, ...]
    next: tuple[EdgePlan, ...]
    role: str = ""
    reads: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()


class PermissionPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A permission that the skill requests; without targets, for all of them."""

    key: str
    targets: tuple[str, ...] = ()


class ValuePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a field. That of a field of type `schema` is JSON text."""

    field: str
    value: Value


class AnswerPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scripted answer of the model in a case.

    Attributes:
        next: The phase that it chooses (`phase:type` if that accepts several types), `end` or `abort`; empty if the
            answer only uses ops.
        values: The fields of the artifact.
        ops: JSON text of a list of ops; empty for none.
    """

    next: str = ""
    values: tuple[ValuePlan, ...] = ()
    ops: str = ""


class CasePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A test case: an input, the answers of the model, and replies to questions."""

    name: str
    input: tuple[ValuePlan, ...]
    answers: tuple[AnswerPlan, ...]
    replies: tuple[str, ...] = ()


class SkillPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A skill as a value that a model can fill in. The first phase is the entry."""

    name: str
    description: str
    artifacts: tuple[ArtifactPlan, ...]
    phases: tuple[PhasePlan, ...]
    final_output: str
    cases: tuple[CasePlan, ...] = ()
    finish_criteria: tuple[str, ...] = ()
    search_hints: tuple[str, ...] = ()
    permissions: tuple[PermissionPlan, ...] = ()


def parse_plan(value: Any) -> SkillPlan:
    """Return the plan in a JSON value.

    Raises:
        SkillPlanInvalid: It is not a plan; the message names the field.
    """
    try:
        return msgspec.convert(value, SkillPlan)
    except (msgspec.ValidationError, RecursionError) as error:
        raise SkillPlanInvalid([str(error).replace("$.", "").replace("`$`", "the plan")]) from error


def render(plan: SkillPlan) -> dict[str, str]:
    """Return the files of the skill that a plan describes: text by path, relative to the skill's folder.

    Raises:
        SkillPlanInvalid: Lists what is wrong with the plan.
    """
    return _Renderer(plan).files()


class _Renderer:
    """Renders one plan and collects its problems."""

    def __init__(self, plan: SkillPlan) -> None:
        self._plan = plan
        self._problems: list[str] = []
        self._types = {USER_MESSAGE.name: ArtifactPlan(USER_MESSAGE.name, (FieldPlan("text"),))}
        self._types |= {one.name: one for one in plan.artifacts}
        self._phases = {one.name: one for one in plan.phases}

    def files(self) -> dict[str, str]:
        plan = self._plan
        self._check_names()
        if self._problems:
            raise SkillPlanInvalid(self._problems[:_MAX_PROBLEMS])
        files = {"skill.md": self._skill()}
        files |= {f"phases/{one.name}.md": self._phase(one) for one in plan.phases}
        files |= {f"artifacts/{one.name}.yaml": self._artifact(one) for one in plan.artifacts}
        for case in plan.cases:
            files |= {f"cases/{case.name}/{name}": text for name, text in self._case(case).items()}
        for path, text in files.items():
            if not _is_writable(text):
                self._problem(f"{path}: a text has characters that a file cannot have, or is too long")
        if self._problems:
            raise SkillPlanInvalid(self._problems[:_MAX_PROBLEMS])
        return files

    def _problem(self, message: str) -> None:
        self._problems.append(message)

    # -- names ----------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        plan = self._plan
        self._check_name("skill", plan.name)
        for kind, names in (
            ("phase", [one.name for one in plan.phases]),
            ("artifact", [one.name for one in plan.artifacts]),
            ("case", [one.name for one in plan.cases]),
        ):
            for name in names:
                self._check_name(kind, name)
            self._check_unique(kind, names)
        if not plan.phases:
            self._problem("phases: a skill needs at least one phase")
        for phase in plan.phases:
            if is_reserved_phase_name(phase.name):
                self._problem(f"phase `{phase.name}`: this name is a choice of every phase; use another one")
            self._check_unique(f"phase `{phase.name}`: choice", [edge.to for edge in phase.next])
        if USER_MESSAGE.name in {one.name for one in plan.artifacts}:
            self._problem(f"artifact `{USER_MESSAGE.name}` exists already; use it without declaring it")
        for artifact in plan.artifacts:
            self._check_unique(f"artifact `{artifact.name}`: field", [field.name for field in artifact.fields])

    def _check_name(self, kind: str, name: str) -> None:
        if not is_valid_name(name) or name != nfc(name):
            rule = "begin with a letter, then use letters, digits, `_` and `-`"
            self._problem(f"the {kind} name {name[:80]!r} is invalid: {rule}")

    def _check_unique(self, kind: str, names: list[str]) -> None:
        folded = [name.casefold() for name in names]
        for name in dict.fromkeys(name for name in folded if folded.count(name) > 1):
            self._problem(f"{kind} `{name}` is declared {folded.count(name)} times")

    # -- the skill ------------------------------------------------------------------------------------

    def _skill(self) -> str:
        plan = self._plan
        graph = {one.name: self._edges(one) for one in plan.phases}
        permissions: dict[str, Any] = {}
        for request in plan.permissions:
            if request.key in permissions:
                self._problem(f"permission `{request.key}` is requested twice; list its targets together")
            permissions[request.key] = list(request.targets) or True
        keys: dict[str, Any] = {
            "type": "skill",
            "name": plan.name,
            "description": plan.description.strip(),
            "entry": plan.phases[0].name,
            "final_output": plan.final_output,
            "finish_criteria": [text.strip() for text in plan.finish_criteria],
            "search_hints": list(plan.search_hints),
            "permissions": permissions,
            "graph": graph,
        }
        required = ("type", "name", "description", "entry", "final_output", "graph")
        return to_front_matter(
            {key: value for key, value in keys.items() if value or key in required}, f"{plan.description.strip()}\n"
        )

    def _edges(self, phase: PhasePlan) -> list[str] | dict[str, str]:
        if len(phase.next) == 1 and not phase.next[0].when.strip():
            return [phase.next[0].to]
        return {edge.to: edge.when.strip() for edge in phase.next}

    def _phase(self, phase: PhasePlan) -> str:
        if not phase.inputs:
            self._problem(f"phase `{phase.name}`: `inputs` must name an artifact")
        keys: dict[str, Any] = {"type": "phase", "name": phase.name, "input": " | ".join(phase.inputs)}
        keys |= {"role": phase.role.strip()} if phase.role.strip() else {}
        keys |= {"reads": list(phase.reads)} if phase.reads else {}
        return to_front_matter(keys | {"allowed_ops": list(phase.ops)}, f"{phase.instructions.strip()}\n")

    # -- artifacts ------------------------------------------------------------------------------------

    def _artifact(self, artifact: ArtifactPlan) -> str:
        place = f"artifact `{artifact.name}`"
        if not artifact.fields:
            self._problem(f"{place} has no fields")
        schema: dict[str, Any] = {"description": artifact.description.strip()} if artifact.description.strip() else {}
        schema |= {
            "type": "object",
            "properties": {field.name: self._field(place, field) for field in artifact.fields},
            "required": [field.name for field in artifact.fields if field.required],
            "additionalProperties": False,
        }
        return to_yaml(schema)

    def _field(self, place: str, field: FieldPlan) -> dict[str, Any]:
        about = {"description": field.description.strip()} if field.description.strip() else {}
        match field.type:
            case "text":
                return about | {"type": "string", "maxLength": MAX_TEXT}
            case "texts":
                return about | {
                    "type": "array",
                    "maxItems": MAX_DRAFT_ITEMS,
                    "items": {"type": "string", "maxLength": MAX_TEXT},
                }
            case "choice":
                if not field.options:
                    self._problem(f"{place}: the choice `{field.name}` has no options")
                return about | {"enum": list(field.options)}
            case "schema":
                return about | self._json_schema(place, field)
        return about | {"type": field.type}

    def _json_schema(self, place: str, field: FieldPlan) -> dict[str, Any]:
        try:
            schema = msgspec.json.decode(field.json_schema, type=dict[str, Any])
            compile_schema(schema)
        except (msgspec.MsgspecError, RecursionError) as error:
            self._problem(f"{place}: `json_schema` of `{field.name}` is not a JSON object: {error}")
            return {}
        except SchemaInvalid as error:
            self._problem(f"{place}: `json_schema` of `{field.name}` is not a JSON Schema: {error}")
            return {}
        return schema

    # -- cases ----------------------------------------------------------------------------------------

    def _case(self, case: CasePlan) -> dict[str, str]:
        """Return the files of a case. What it expects follows from its answers: that all of them are accepted."""
        place = f"case `{case.name}`"
        entry = self._plan.phases[0]
        first = self._artifact_of(place, self._input_type(entry.inputs, case), case.input)
        answers: list[dict[str, Any]] = []
        phase, path, status, final = entry, [entry.name], "", None
        for number, answer in enumerate(case.answers, start=1):
            here = f"{place}, answer {number}"
            if status:
                self._problem(f"{here}: the case has ended before")
                break
            ops = self._ops(here, answer.ops)
            if not answer.next:
                if not ops:
                    self._problem(f"{here}: it has neither `next` nor `ops`")
                answers.append({"control_ir": ops})
                continue
            target, artifact = self._decision(here, phase, answer)
            answers.append(_decision(target, artifact, ops, f"answer {number} of the case {case.name}"))
            if target in (END, ABORT):
                status, final = ("finished", artifact) if target == END else ("aborted", None)
            elif target in self._phases:
                phase = self._phases[target]
                path.append(target)
        if not status:
            self._problem(f"{place}: its last answer must choose `end`")
        expected = {"status": status, "path": path, "artifact": final}
        files = {
            "input.json": _pretty(first),
            "answers.jsonl": "".join(f"{_line(answer)}\n" for answer in answers),
            "expected.json": _pretty(expected),
        }
        return files | ({"replies.jsonl": "".join(f"{_line(one)}\n" for one in case.replies)} if case.replies else {})

    def _input_type(self, names: Iterable[str], case: CasePlan) -> str:
        """Return the input type of a case: the first whose fields include those that the case sets."""
        known = [name for name in names if name in self._types]
        used = {one.field for one in case.input}
        fitting = (name for name in known if used <= {field.name for field in self._types[name].fields})
        return next(fitting, known[0] if known else "")

    def _decision(self, place: str, phase: PhasePlan, answer: AnswerPlan) -> tuple[str, dict[str, Any] | None]:
        """Return the phase that an answer chooses, and its artifact."""
        target, _, type_ = answer.next.partition(":")
        if target == ABORT:
            return target, {}
        choices = [edge.to for edge in phase.next]
        if target not in choices:
            named = ", ".join(f"`{name}`" for name in (*choices, ABORT))
            self._problem(f"{place}: `{target[:80]}` does not follow `{phase.name}`; choose one of {named}")
            return target, {}
        accepted = (self._plan.final_output,) if target == END else self._inputs_of(target)
        if type_ and type_ not in accepted:
            self._problem(f"{place}: `{target}` does not accept `{type_[:80]}`")
        name = type_ if type_ in accepted else next(iter(accepted), "")
        return target, self._artifact_of(place, name, answer.values)

    def _inputs_of(self, phase: str) -> tuple[str, ...]:
        return self._phases[phase].inputs if phase in self._phases else ()

    def _artifact_of(self, place: str, name: str, values: tuple[ValuePlan, ...]) -> dict[str, Any]:
        if name not in self._types:
            self._problem(f"{place}: no artifact `{name[:80]}` is declared")
            return {"type": name, "data": {}}
        fields = {field.name: field for field in self._types[name].fields}
        data: dict[str, Any] = {}
        for one in values:
            if one.field not in fields:
                named = ", ".join(f"`{known}`" for known in fields)
                self._problem(f"{place}: `{name}` has no field `{one.field[:80]}`; it has {named}")
            else:
                data[one.field] = self._value(place, fields[one.field], one.value)
        return {"type": name, "data": data}

    def _value(self, place: str, field: FieldPlan, value: Value) -> Any:
        """Return a value as its field has it. A number or a truth value may be written as text."""
        match field.type, value:
            case "schema", str():
                try:
                    return msgspec.json.decode(value)
                except (msgspec.MsgspecError, RecursionError) as error:
                    self._problem(f"{place}: the value of `{field.name}` is not JSON: {error}")
                    return None
            case (("integer" | "number" | "boolean"), str()):
                try:
                    return msgspec.json.decode(value, type=int | float | bool)
                except msgspec.MsgspecError:
                    return value
            case "texts", str():
                return [value]
            case "integer", float() if math.isfinite(value) and value.is_integer():
                return int(value)
        return value

    def _ops(self, place: str, text: str) -> list[dict[str, Any]]:
        if not text.strip():
            return []
        try:
            return msgspec.json.decode(text, type=list[dict[str, Any]])
        except (msgspec.MsgspecError, RecursionError) as error:
            self._problem(f"{place}: `ops` is not a JSON list of ops: {error}")
            return []


def _decision(target: str, artifact: dict[str, Any] | None, ops: list[dict[str, Any]], summary: str) -> dict[str, Any]:
    """Return an answer in the form of the contract."""
    kinds = {END: ("finish", "finish", None), ABORT: ("abort", "abort", None)}
    kind, decision, next_phase = kinds.get(target, ("transition", "continue", target))
    control = {
        "type": kind,
        "decision": decision,
        "next_phase": next_phase,
        "confidence": 1,
        "reason": {"summary": summary},
    }
    return {"control": control, "artifact": artifact} | ({"control_ir": ops} if ops and target != ABORT else {})


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


_UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line ends other than LF, and halves of surrogate pairs."""


def _is_writable(text: str) -> bool:
    return len(text) <= _MAX_FILE_CHARS and _UNWRITABLE.search(text) is None
