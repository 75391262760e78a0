"""The ops `run_skill` and `start_skill`: run another skill, and take its final artifact or go on without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.journal import Blob, canonical
from reyn.journal.kinds import RunRequest
from reyn.ops.op import Overview, Plan, RunOutcome
from reyn.permissions import Denied
from reyn.ranking import Ranking
from reyn.skills.catalogue import Catalogue
from reyn.skills.resolve import is_path
from reyn.vocabulary import OpForm, OpSpec, OpTarget
from reyn.vocabulary.schemas import arguments, array, result, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.ops.op import Call, Env, OpSetup, Result
    from reyn.skills.catalogue import SkillSummary

_INPUT = {"type": ["object", "string"], "maxLength": 1_000_000}
_FORM = OpForm(
    op=None,
    summary="Run another skill and take its final artifact.",
    arguments=arguments("run_skill", None, {"skill": text(200, min_length=1), "input": _INPUT}),
    effect="idempotent",
    result=result(
        "run_skill",
        None,
        {
            "skill": {"type": "string"},
            "success": {"type": "boolean"},
            "artifact_type": {"type": "string"},
            "final_output": {},
            "run": {"type": "string"},
            "phase_artifacts": array(
                {"type": "object", "properties": {"phase": {"type": "string"}, "artifact": {"type": "object"}}}, 50
            ),
        },
    ),
    example={"kind": "run_skill", "skill": "summarise", "input": {"text": "what to sum up"}},
)
_START_FORM = OpForm(
    op=None,
    summary="Start a skill that takes long and go on with the conversation. A message reports its end.",
    arguments=arguments("start_skill", None, {"skill": text(200, min_length=1), "input": _INPUT}),
    effect="idempotent",
    result=result("start_skill", None, {"skill": {"type": "string"}, "run": {"type": "string"}}),
    example={"kind": "start_skill", "skill": "report", "input": {"text": "what to report on"}},
)
MAX_OVERVIEW_CHARS = 8_000
"""The size of the list of skills in a prompt, about 2,000 tokens."""
MAX_BEST = 12
"""The number of skills among which a small model chooses."""
_MAX_TEXT = 300
_MAX_SCHEMA_BYTES = 4_000


def _planned(call: Call, env: Env, *, background: bool = False) -> Plan | Denied:
    """Allow skills by name only: a path would let the model read files that it may not read."""
    skill = call.args["skill"]
    if is_path(skill):
        return Denied(
            "default: no skills by path",
            f"`{skill}` is a path; run a skill by its name in the project or the standard library",
        )
    if not env.may_run(skill):
        return Denied("allowed_skills", f"`allowed_skills` of the phase does not include `{skill}`")
    content = Blob.of(canonical(call.args["input"]))
    request = RunRequest(skill, content.hash, background)
    return Plan("default: run skills by name", request=request, blobs=(content,))


class RunSkillOp:
    """Runs through a request to the kernel, which executes the sub-run."""

    spec = OpSpec("run_skill", _FORM.summary, "idempotent", forms=(_FORM,), skill_field="skill", has_overview=True,
                  target_field="skill")  # fmt: skip

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue
        self._ranking: Ranking[SkillSummary] = Ranking(lambda skill: skill.text)
        self._targets: dict[str, tuple[SkillSummary, OpTarget]] = {}

    def set_up(self, setup: OpSetup) -> RunSkillOp:
        return RunSkillOp(Catalogue(setup.library, setup.load))

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        return _planned(call, env)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        outcome: RunOutcome = plan.answer
        skill, artifact = call.args["skill"], outcome.artifact
        phases = [{"phase": phase, "artifact": one} for phase, one in outcome.phases]
        more = {"run": call.relative(outcome.run_id), "phase_artifacts": phases}
        if artifact is None:
            return call.error(outcome.error, skill=skill, success=False, **more)
        return call.ok(skill=skill, success=True, artifact_type=artifact["type"], final_output=artifact["data"], **more)

    def overview(self, query: str, env: Env) -> Overview:
        """List the skills that the phase may run; if they do not all fit, those that match the query."""
        known = [one for one in self._catalogue or () if env.may_run(one.name)]
        lines = [_line(one) for one in known]
        order: Sequence[int] = range(len(known))
        if is_ranked := sum(map(len, lines)) > MAX_OVERVIEW_CHARS or len(known) > MAX_BEST:
            ranked = dict.fromkeys(number for number, _ in self._ranking.best_matches(query, known, len(known)))
            order = [*ranked, *(number for number in order if number not in ranked)]
        chosen: list[int] = []
        size = 0
        for number in order:
            size += len(lines[number])
            if size > MAX_OVERVIEW_CHARS:
                break
            chosen.append(number)
        if len(chosen) == len(known):
            listed = lines
        else:
            listed = [lines[number] for number in chosen]
            listed.append(f"and {len(known) - len(chosen)} more that match the message less")
        # Sorted, so that the contract is the same for the next message.
        targets = tuple(self._target(known[number]) for number in sorted(chosen))
        best = tuple(known[number].name for number in chosen[:MAX_BEST]) if is_ranked else ()
        return Overview("Skills that you can run", tuple(listed), targets, best)

    def _target(self, skill: SkillSummary) -> OpTarget:
        """Return how a call names a skill, computed once as long as the skill does not change."""
        found = self._targets.get(skill.name)
        if found is None or found[0] is not skill:
            found = self._targets[skill.name] = (skill, OpTarget(skill.name, _text(skill), _arguments(skill)))
        return found[1]


def _text(skill: SkillSummary) -> str:
    return skill.description.rstrip(". ")[:_MAX_TEXT] or skill.name.replace("_", " ")


def _arguments(skill: SkillSummary) -> dict[str, Any]:
    """Return the schema of the input of a skill; a very large one is left out."""
    schemas = [_standalone(schema, f"{skill.name}/{name}") for name, schema in skill.inputs]
    if len(schemas) == 1:
        schema = schemas[0]
    else:
        named = zip(skill.inputs, schemas, strict=True)
        schema = {"anyOf": [_artifact(name, data) for (name, _), data in named]}
    is_large = not isinstance(schema, dict) or len(canonical(schema)) > _MAX_SCHEMA_BYTES
    return {} if is_large else {"input": schema}


def _standalone(schema: Any, name: str) -> Any:
    """Give a schema its own `$id`, so that `#/…` references resolve inside it after it is embedded."""
    if not isinstance(schema, dict) or "$id" in schema or b'"$ref"' not in canonical(schema):
        return schema
    standalone = {"$id": f"urn:reyn:input:{name}", **schema}
    if "$ref" in schema:  # draft 7 ignores `$id` beside `$ref`
        standalone["allOf"] = [*schema.get("allOf", []), {"$ref": standalone.pop("$ref")}]
    return standalone


def _artifact(name: str, data: Any) -> dict[str, Any]:
    properties = {"type": {"const": name}, "data": data}
    return {"type": "object", "properties": properties, "required": ["type", "data"], "additionalProperties": False}


def _line(skill: SkillSummary) -> str:
    """Describe a skill in one line: what it is for, and the fields of its input."""
    inputs = " or ".join(_fields(schema) for _, schema in skill.inputs)
    return f"{skill.name}: {skill.description.rstrip('. ')[:_MAX_TEXT] or 'no description'}. Input: {inputs}"


def _fields(schema: object) -> str:
    """Return the fields of a schema; `?` marks optional ones."""
    if not isinstance(schema, dict):
        return "any"
    required = schema.get("required", ())
    fields = [
        f"{name}{'' if name in required else '?'} ({_type(field)})"
        for name, field in list(schema.get("properties", {}).items())[:20]
    ]
    return ", ".join(fields) or "any"


def _type(field: object) -> str:
    if not isinstance(field, dict):
        return "any"
    if "enum" in field:
        return " | ".join(str(value) for value in field["enum"][:10])
    kind = field.get("type", "any")
    return " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


class StartSkillOp:
    """Starts a background run through a request to the kernel. The run does not wait for it."""

    spec = OpSpec("start_skill", _START_FORM.summary, "idempotent", forms=(_START_FORM,), is_step=False,
                  is_for_conversations=True, target_field="skill", targets_of="run_skill")  # fmt: skip

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        return _planned(call, env, background=True)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        outcome: RunOutcome = plan.answer
        if outcome.error:
            return call.error(outcome.error, skill=call.args["skill"])
        return call.ok(skill=call.args["skill"], run=call.relative(outcome.run_id))
