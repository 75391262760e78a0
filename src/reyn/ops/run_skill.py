"""The ops that run another skill: `run_skill` and `judge_output` take its final artifact, `start_skill` goes on.

`judge_output` lets a model score an output against a rubric. The model call is a sub-run of the standard skill of the
same name: recorded, counted towards the limits of the run, and replayed without a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from reyn.errors import ReynError
from reyn.journal import Blob, canonical
from reyn.journal.kinds import RunRequest
from reyn.ops.op import Call, Env, OpSetup, Plan, ProjectOp, Result, RunOutcome, approval_of
from reyn.ops.overviews import MAX_LISTING_AGE, Overview, fitting
from reyn.permissions import Denied, Verdict
from reyn.ranking import Ranking
from reyn.skills.agents import agent_of
from reyn.skills.catalogue import Catalogue, SkillSummary
from reyn.skills.resolve import is_path
from reyn.vocabulary import OpTarget
from reyn.vocabulary.error_names import ANY_ERROR
from reyn.vocabulary.schemas import BOOLEAN, STRING, array, single_form, text
from reyn.workspace.recorded import run_path

_ARGUMENTS = {"skill": text(200, min_length=1), "input": {"type": ["object", "string"], "maxLength": 1_000_000}}
_PHASE = {"type": "object", "properties": {"phase": STRING, "artifact": {"type": "object"}, "path": STRING}}
MAX_OVERVIEW_CHARS = 8_000
"""The size of the list of skills in a prompt, about 2,000 tokens."""
_MAX_TEXT = 300
_MAX_SCHEMA_BYTES = 4_000


def _planned(skill: str, call: Call, env: Env, *, background: bool = False) -> Plan | Denied:
    """Allow skills of the project and the standard library only: another path would let the model read files that it
    may not read."""
    if is_path(skill):
        return Denied(
            "default: no skills by path",
            f"`{skill}` is a path; run a skill by its name in the project or the standard library",
        )
    if not env.may_run(skill):
        return Denied("allowed_skills", f"`allowed_skills` of the phase does not include `{skill}`")
    content = Blob.of(canonical(call.args["input"]))
    request = RunRequest(skill, content.hash, background, call.args.get("workspace") == "shared")
    return _within_rules(Plan(request=request, blobs=(content,)), call, env)


def _within_rules(plan: Plan, call: Call, env: Env) -> Plan | Denied:
    """Return the plan of an op that runs a skill, under the rules besides that of the op's own permission.

    These are the rules about running the skill, and about the agent that it belongs to.
    """
    assert isinstance(plan.request, RunRequest)
    skill = plan.request.skill
    verdicts: list[Verdict | None] = []
    if call.kind != RunSkillOp.spec.kind:
        verdicts.append(env.gate.capability("run_skill", skill))
    if agent := agent_of(skill):
        verdicts.append(env.gate.restriction("agent", agent))
    if denied := next((verdict for verdict in verdicts if isinstance(verdict, Denied)), None):
        return denied
    asking = [rule for verdict in verdicts if (rule := approval_of(verdict)) is not None]
    return replace(plan, approval=" and ".join(asking)) if asking else plan


class _RunsSkill(ProjectOp):
    """An op whose target is a skill."""

    def target(self, call: Call) -> str:
        """Return the name of the skill, also where the call has the path of a skill of the project."""
        skill = str(call.args["skill"])
        return self.project.library.name_of(skill) if is_path(skill) and self._setup is not None else skill

    def version(self, call: Call, env: Env) -> str:
        try:
            return self.project.load(self.target(call), None).pinned.hash
        except ReynError:
            return ""


class RunSkillOp(_RunsSkill):
    """Runs through a request to the kernel, which executes the sub-run."""

    spec = single_form(
        "run_skill",
        "Run another skill and take its final artifact.",
        "idempotent",
        _ARGUMENTS,
        {"workspace": {"enum": ["isolated", "shared"], "default": "isolated", "deprecated": True}},
        results={
            "skill": STRING,
            "success": BOOLEAN,
            "artifact_type": STRING,
            "final_output": {},
            "run": STRING,
            "phase_artifacts": array(_PHASE, 50),
            "folder": STRING,
        },
        example={"skill": "summarise", "input": {"text": "what to sum up"}},
        permission="run_skill",
        skill_field="skill",
        has_overview=True,
        target_field="skill",
        errors=(ANY_ERROR,),
    )

    def __init__(self, setup: OpSetup | None = None) -> None:
        super().__init__(setup)
        self._catalogue = Catalogue(setup.library, lambda name: setup.load(name, None)) if setup is not None else None
        self._ranking: Ranking[SkillSummary] = Ranking(lambda skill: skill.text)
        self._descriptions: dict[str, tuple[SkillSummary, str, OpTarget]] = {}
        self._whole: tuple[tuple[SkillSummary, ...], Overview] | None = None
        """Skills that all fit into an overview, and that overview, which does not depend on the query."""

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        return _planned(self.target(call), call, env)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        outcome: RunOutcome = plan.answer
        skill, artifact = self.target(call), outcome.artifact
        own = call.key.partition("/")[2]
        phases = [{"phase": phase, "artifact": one, "path": run_path(own, name)} for phase, one, name in outcome.phases]
        more = {"run": call.relative(outcome.run_id), "phase_artifacts": phases}
        more |= {"folder": run_path(own)} if outcome.is_recorded else {}
        if artifact is None:
            more |= {"error_name": outcome.error_name} if outcome.error_name else {}
            return call.error(outcome.error, skill=skill, success=False, **more)
        return call.ok(skill=skill, success=True, artifact_type=artifact["type"], final_output=artifact["data"], **more)

    def overview(self, query: str, env: Env) -> Overview:
        """List the skills that the phase may run; if they do not all fit, those that match the query."""
        skills = self._catalogue.listed(MAX_LISTING_AGE) if self._catalogue is not None else ()
        known = tuple(one for one in skills if env.may_run(one.name))
        if self._whole is not None and self._whole[0] == known:
            return self._whole[1]
        lines = [self._described(one)[1] for one in known]
        order: Sequence[int] = range(len(known))
        if sum(map(len, lines)) > MAX_OVERVIEW_CHARS:
            best_first = self._ranking.best_matches(query, known, len(known), only_telling=True)
            ranked = dict.fromkeys(number for number, _ in best_first)
            order = [*ranked, *(number for number in order if number not in ranked)]
        chosen = fitting(lines, order, MAX_OVERVIEW_CHARS)
        left = len(known) - len(chosen)
        listed = [lines[number] for number in chosen] if left else lines
        if left:
            listed.append(f"and {left} more that match the message less")
        # Sorted, so that the contract is the same for the next message.
        targets = tuple(self._described(known[number])[2] for number in sorted(chosen))
        overview = Overview("Skills that you can run", tuple(listed), targets)
        if not left:
            self._whole = (known, overview)
        return overview

    def _described(self, skill: SkillSummary) -> tuple[SkillSummary, str, OpTarget]:
        """Return the line of a skill, and how a call names it, computed once as long as the skill does not change."""
        found = self._descriptions.get(skill.name)
        if found is None or found[0] is not skill:
            target = OpTarget(skill.name, _text(skill), _arguments(skill), skill.hints)
            found = self._descriptions[skill.name] = (skill, _line(skill), target)
        return found


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


class StartSkillOp(_RunsSkill):
    """Starts a background run through a request to the kernel. The run does not wait for it."""

    spec = single_form(
        "start_skill",
        "Start a skill that takes long and go on with the conversation. A message reports its end.",
        "idempotent",
        _ARGUMENTS,
        results={"skill": STRING, "run": STRING},
        example={"skill": "report", "input": {"text": "what to report on"}},
        permission="start_skill",
        is_step=False,
        is_for_conversations=True,
        target_field="skill",
        targets_of="run_skill",
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        """Plan the run. A skill that may not be run is not started either."""
        return _planned(self.target(call), call, env, background=True)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        outcome: RunOutcome = plan.answer
        if outcome.error:
            return call.error(outcome.error, skill=call.args["skill"])
        return call.ok(skill=call.args["skill"], run=call.relative(outcome.run_id))


# -- judge_output ---------------------------------------------------------------------------------------------

SKILL = "judge_output"
_FRACTION = {"type": "number", "minimum": 0, "maximum": 1}


class JudgeOutputOp:
    """Judges through a request to the kernel, which executes the sub-run.

    With `on_fail: continue`, a score below the threshold is a result like any other. With `transition` or `abort` it is
    an error: a decision that carries the op does not take effect, and a step fails.
    """

    spec = single_form(
        "judge_output",
        "Let a model score an output against a rubric, from 0 to 1.",
        "idempotent",
        {"output": {}, "rubric": text(8_000, min_length=1)},
        {
            "threshold": {**_FRACTION, "default": 0.8},
            "on_fail": {"enum": ["continue", "transition", "abort"], "default": "continue"},
        },
        results={
            "score": _FRACTION,
            "passed": BOOLEAN,
            "threshold": _FRACTION,
            "judgement": STRING,
            "on_fail": STRING,
            "run": STRING,
        },
        example={"output": "the text", "rubric": "It is polite and names a date."},
        permission="judge_output",
        gate_field="rubric",
        advice="With on_fail abort, a decision that carries it holds only if the output passes.",
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        output = call.args["output"]
        judged = {
            "rubric": call.args["rubric"],
            "output": output if isinstance(output, str) else canonical(output).decode(),
        }
        content = Blob.of(canonical({"type": "judged_output", "data": judged}))
        return _within_rules(Plan(request=RunRequest(SKILL, content.hash), blobs=(content,)), call, env)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        outcome: RunOutcome = plan.answer
        data = outcome.artifact["data"] if outcome.artifact else {}
        score = data.get("score")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            return call.error(
                outcome.error or f"the skill `{SKILL}` returned no score", run=call.relative(outcome.run_id)
            )
        args = self.spec.complete(call.args)
        threshold, on_fail = args["threshold"], args["on_fail"]
        fields = {
            "score": score,
            "passed": score >= threshold,
            "threshold": threshold,
            "judgement": str(data.get("reason", "")),
            "on_fail": on_fail,
            "run": call.relative(outcome.run_id),
        }
        if score < threshold and on_fail != "continue":
            return call.error(
                f"the output scored {score:g}, below {threshold:g}: {data.get('reason', '')}"[:500], **fields
            )
        return call.ok(**fields)
