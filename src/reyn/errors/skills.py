"""RYN1xx: skills. RYN2xx: inputs, answers and steps."""

from __future__ import annotations

from reyn.errors.base import FindingsError, ReynError, StoppedError, hint_of


class SkillError(ReynError, exit_code=2):
    """A skill cannot be loaded."""


class SkillNotFound(SkillError, code="RYN101"):
    """No skill has this name, or the path has no `skill.md`."""

    hint = "Use the name of a skill of the project, or the path of a folder with a `skill.md`."


class AgentNotFound(SkillError, code="RYN105"):
    """No agent has this name."""

    hint = "Use the name of a file in `reyn/agents/`, or `default`."


class MemoryNotFound(SkillError, code="RYN106"):
    """No memory has this name."""

    hint = "Use the name of a file in `reyn/memory/`, such as `tea`, or `designer/tea` for a memory of one agent."


class GraphTooLarge(SkillError, code="RYN107"):
    """A graph has too many nodes or edges to be drawn as SVG."""

    hint = "Draw the graph as text or Mermaid."


class AgentSkillInvalid(SkillError, code="RYN430"):
    """A folder is not an Agent Skill (agentskills.io), or is too large to import; nothing was written."""

    hint = "Pass a folder with a `SKILL.md` whose front matter has `name` and `description`."
    size_hint = "Raise the limit, or remove files that the skill does not need, such as fonts."


class SkillNotExportable(SkillError, code="RYN431"):
    """A skill cannot be written in the format of Agent Skills; nothing was written."""

    hint = "Fix the skill, or choose another folder."


class SkillPlanInvalid(SkillError, code="RYN432"):
    """The plan of a skill has errors, so that no files can be rendered from it.

    Attributes:
        problems: What is wrong, one sentence each.
    """

    hint = "Fix every problem in the plan."

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(["the plan of the skill has errors:", *problems]))


class CaseInvalid(SkillError, code="RYN433"):
    """A case of a skill cannot be read, or the skill has none."""

    hint = "A case is a folder below `cases/` with `input.json`, `answers.jsonl` and `expected.json`."


class TrialTooDeep(SkillError, code="RYN434"):
    """A case tries a skill whose cases try skills in turn."""

    hint = "A case may try the skill that it makes. Leave the cases of that skill without `skill_try`."


class SkillInvalid(SkillError, FindingsError, code="RYN102"):
    """The skill's files have errors; each has a position and, if known, a fix."""

    hint = "Fix the errors and try again; the run was not started."


class SkillUnsupported(SkillError, code="RYN103"):
    """The skill is valid but uses a feature that this version cannot execute."""

    hint = "Remove the feature from the skill."


class FixImpossible(SkillError, code="RYN104"):
    """The older form of the skill cannot be rewritten without changing its meaning; no file was changed."""

    hint = "Fix the errors of the skill first, or rewrite it by hand."


class ManifestInvalid(SkillError, code="RYN150"):
    """A context manifest names a field that does not exist."""

    hint = "Use `goal`, `epic_id`, `verdicts`, `artifacts_produced`, `decisions_made`, `open_risks` or `narrative`."


class FunctionInvalid(SkillError, code="RYN160"):
    """A Python function cannot be a skill or a tool, because of its signature, a type or its docstring."""

    hint = "Change the signature, the type, the docstring or the option that the message names."


class FunctionNotFound(SkillError, code="RYN161"):
    """A name of the form `module:function` does not refer to a function with `@llm_function`."""

    hint = "Write the module, a colon and the name of a function that is decorated with `@llm_function`."


class TemplateInvalid(SkillError, code="RYN162"):
    """A template parameter of a function's docstring has no value, or a value has no declared parameter."""

    hint = (
        "Declare the parameters with `template_params=`, and pass a value for each with `options(template_params=…)`."
    )


class ReturnInvalid(SkillError, code="RYN163"):
    """The result of a run cannot be converted to the return type of its function."""

    hint = "The type has changed since the run, or the run was resumed without its function. Call the function again."


class CallStopped(SkillError, StoppedError, code="RYN164", exit_code=1):
    """The run of a function call ended or stopped without a value.

    Attributes:
        run_id: The run.
        status: Its status, such as `failed` or `waiting`.
    """

    hint = "Inspect the run, fix the cause, then resume it."

    def as_json(self) -> dict[str, object]:
        return super().as_json() | {"run_id": self.run_id, "status": self.status}


class CallImpossible(SkillError, code="RYN165"):
    """A plain function is called inside the event loop that must execute it, which would block the loop."""

    hint = "Declare the function with `async def` and await it, or call it from a plain `def`."


class ArgumentsInvalid(CallImpossible, TypeError, code="RYN166"):
    """The arguments of a call do not fit the parameters of the function, as a `TypeError` of Python."""

    hint = "Pass the parameters of the function; options of a call are set with `options(…)`."


class ContractError(ReynError, exit_code=2):
    """An input, an answer or a step violates the contract of its phase."""


class InputInvalid(ContractError, code="RYN201"):
    """The entry phase does not accept the input of the run."""

    hint = (
        "Pass the data of the entry phase's input type as a JSON object. Plain text is accepted only if that type is "
        "`user_message`."
    )


class AnswersRejected(ContractError, code="RYN202", exit_code=1, error_name="rejected"):
    """The model's answers in a phase were rejected until `max_phase_retries` was used up."""

    hint = (
        "Read the rejections and the answers, improve the instructions or the schema, then retry with the current "
        "version of the skill, or with another model."
    )
    turn_hint = "Say it in other words, or use a larger model."


class ModelAborted(ContractError, code="RYN207", exit_code=1, error_name="aborted"):
    """The model aborted a turn of a conversation. The conversation goes on with the next message."""

    hint = "Read the reason, then say it in other words, or use a larger model. What was completed is in the history."


class StepFailed(ContractError, code="RYN203", exit_code=1):
    """A step of a preprocessor or postprocessor failed, or the postprocessor's output is invalid."""

    hint = (
        "Fix the cause that the message names, or set the step's `on_error` to continue without its result; then retry "
        "with the current version of the skill, because a run has its own copy of it."
    )


class SubRunFailed(ContractError, code="RYN204", exit_code=1):
    """A skill used as a node returned no artifact, or one that the next node does not accept."""

    hint = (
        "Inspect the sub-run if the message names one, fix the skill, then retry with the current version: a run has "
        "its own copy."
    )


class JoinFailed(ContractError, code="RYN208", exit_code=1):
    """The join of a fan-out cannot be met: too many branches failed, or there are too few or too many items."""

    hint = (
        "Inspect the branches that the message names, fix the skill, then retry with the current version; branches "
        "that completed are not repeated. `need` and `on_item_error` of the node say how many have to complete."
    )


class WorkNotDone(ContractError, code="RYN205", exit_code=1, error_name="rejected"):
    """A phase could not do an op of its `must`: the op was denied, or the model did not do it in its turns."""

    hint = (
        "If the op was denied, grant what the message names. Otherwise read the turns of the visit, say in the "
        "instructions when to use the op, or raise `max_act_turns`; then retry with the current version of the skill."
    )


class ConditionFailed(ContractError, code="RYN210", exit_code=1):
    """An expression of the skill's graph has no value, or what a rule makes does not fit the next node."""

    hint = (
        "Read the expression and the values that the message names, test for missing values with `has(...)` or correct "
        "the schema, then retry with the current version of the skill, because a run has its own copy of it."
    )


class StateFailed(ContractError, code="RYN211", exit_code=1):
    """A sum of the state has no value that a journal can hold: it is too large, or its field is no number."""

    hint = (
        "Bound the number in the artifact's schema with `maximum`, or correct `state` of skill.md; then retry with the "
        "current version of the skill."
    )


class FillFailed(ContractError, code="RYN206", exit_code=1):
    """An op that fills a field of a result did not happen in the visit, or its value does not fit the field."""

    hint = "Add the op to `must` of the phase, or make the field optional; then retry with the current version."


FAILURES_OF_SKILLS = tuple(
    error.code
    for error in (
        AnswersRejected,
        StepFailed,
        SubRunFailed,
        WorkNotDone,
        FillFailed,
        JoinFailed,
        ConditionFailed,
        StateFailed,
    )
)
"""Failures whose cause is in a skill: a run has its own copy of it, so that a retry needs the current version.

They are the result of a sub-run, with which its parent continues. Any other failure (an unavailable model) stops the
parent as well.
"""
DENIED_HINT = (
    "Do what the message says, change the rule that it names, or change the skill; then retry with the current version "
    "of the skill, because a run has its own copy of it."
)
"""The hint of such a failure if a permission rule or a person denied what a step or a node does."""


class TranscriptInvalid(ContractError, code="RYN220"):
    """A tool call of a transcript has no result or several, or a result has no call."""

    hint = "Add exactly one result for every tool call, right after the message with the call."


class MutationInvalid(ContractError, code="RYN221"):
    """A patch of a transcript cannot be applied: it is unknown, or refers to something that does not exist."""

    hint = "Use the mutation classes of `reyn.context`, and ids that exist. The transcript was not changed."


class MessageInvalid(ContractError, code="RYN222"):
    """A message of a history cannot be sent: its role is unknown, a field is malformed, or its text is not Unicode."""

    hint = "Fix the message that the error names, or leave it out of the history."


def turn_hint(code: str) -> str:
    """Return what to do after a turn of a conversation without a reply, by the code of its error."""
    return AnswersRejected.turn_hint if code == AnswersRejected.code else hint_of(code)
