"""Every error that Reyn raises, with a stable code and a hint.

Hints name no command: `reyn.cli.hints` adds those. Docstrings and hints are published in docs/reference/errors.md. A
code is never reused.

    ReynError
    ├── SkillError                 RYN1xx  skills
    │   ├── SkillNotFound          RYN101
    │   ├── SkillInvalid           RYN102  lists all findings
    │   ├── SkillUnsupported       RYN103
    │   ├── FixImpossible          RYN104
    │   ├── AgentNotFound          RYN105
    │   ├── MemoryNotFound         RYN106
    │   ├── GraphvizUnavailable    RYN107
    │   ├── AgentSkillInvalid      RYN430
    │   ├── SkillNotExportable     RYN431
    │   ├── SkillPlanInvalid       RYN432
    │   ├── CaseInvalid            RYN433
    │   ├── ManifestInvalid        RYN150
    │   ├── FunctionInvalid        RYN160
    │   ├── FunctionNotFound       RYN161
    │   ├── TemplateInvalid        RYN162
    │   ├── ReturnInvalid          RYN163
    │   ├── CallStopped            RYN164
    │   └── CallImpossible         RYN165
    ├── ContractError              RYN2xx  inputs, answers, steps
    │   ├── InputInvalid           RYN201
    │   ├── AnswersRejected        RYN202
    │   ├── StepFailed             RYN203
    │   ├── SubRunFailed           RYN204
    │   ├── TranscriptInvalid      RYN220
    │   ├── MutationInvalid        RYN221
    │   ├── MessageInvalid         RYN222
    │   └── CompactionFailed       RYN223
    ├── AccessError                RYN3xx  permissions, approvals and trust
    │   ├── ApprovalExpired        RYN301
    │   ├── ApprovalUnknown        RYN302
    │   ├── SecretRefused          RYN311  also a ModelError
    │   ├── ProjectUntrusted       RYN312  also a ModelError
    │   └── SandboxUnavailable     RYN330
    │       └── SandboxStartFailed RYN331
    ├── JournalError               RYN4xx  runs and their storage
    │   ├── RunNotFound            RYN401
    │   ├── RunBusy                RYN402
    │   ├── AppendConflict         RYN403
    │   ├── ChainBroken            RYN404
    │   ├── ReplayMismatch         RYN405
    │   ├── BlobMissing            RYN406
    │   ├── EventInvalid           RYN407
    │   ├── StoreUnavailable       RYN408
    │   ├── RunIdTaken             RYN409
    │   ├── RunNotResumable        RYN410
    │   ├── RunBlocked             RYN411
    │   ├── StoreDamaged           RYN412
    │   ├── RunIdInvalid           RYN413
    │   ├── QuestionUnknown        RYN414
    │   ├── ReplyInvalid           RYN415
    │   ├── UpgradeIncompatible    RYN416
    │   ├── ForkImpossible         RYN417
    │   ├── ArchiveInvalid         RYN418
    │   ├── OpMissing              RYN419
    │   ├── RunInUse               RYN420
    │   ├── RunImported            RYN421
    │   ├── ArchiveTooLarge        RYN422
    │   ├── HistoryInvalid         RYN423
    │   ├── HeadMismatch           RYN424
    │   ├── ConversationInvalid    RYN426
    │   └── ChainTooDeep           RYN437
    ├── ModelError                 RYN5xx  models
    │   ├── ModelUnknown           RYN501
    │   │   └── ModelUntrusted     RYN523
    │   ├── ScriptInvalid          RYN502
    │   ├── ScriptExhausted        RYN503
    │   ├── RecordingMissing       RYN504
    │   ├── ModelBroken            RYN505
    │   ├── ModelUnavailable       RYN506  transient
    │   ├── RateLimited            RYN507  transient
    │   ├── KeyRejected            RYN508
    │   ├── RequestRejected        RYN509
    │   ├── ResponseIncomplete     RYN510  transient
    │   ├── ModelNotInstalled      RYN511
    │   ├── PromptTooLong          RYN512
    │   ├── ModelTimeout           RYN513  transient
    │   ├── SchemaRejected         RYN514
    │   ├── PullFailed             RYN515
    │   ├── PriceUnknown           RYN520
    │   ├── CurrencyUnknown        RYN521
    │   ├── PriceInvalid           RYN525
    │   ├── ImageInvalid           RYN530
    │   ├── ChatStopped            RYN531
    │   ├── AdapterInvalid         RYN532
    │   ├── CircuitOpen            RYN533  transient
    │   └── HookFailed             RYN540
    ├── LimitError                 RYN6xx  limits
    │   ├── LimitUnknown           RYN601
    │   └── BudgetExceeded         RYN522  also a JournalError
    ├── ConfigError                RYN7xx  configuration, secrets, installed ops
    │   ├── ConfigInvalid          RYN701
    │   ├── ProjectNotFound        RYN702
    │   ├── FileExists             RYN703
    │   ├── SecretMissing          RYN704
    │   ├── SecretStoreUnavailable RYN705
    │   ├── SecretNameInvalid      RYN706
    │   ├── SecretValueInvalid     RYN707
    │   ├── OpInvalid              RYN708
    │   ├── OpUnknown              RYN709
    │   ├── UsageError             RYN710
    │   ├── UserConfigUnavailable  RYN711
    │   ├── OriginInvalid          RYN712
    │   ├── SettingUnknown         RYN719
    │   ├── CounterUnavailable     RYN720
    │   ├── ModuleUnloadable       RYN730
    │   ├── McpDefinitionsInvalid  RYN735
    │   ├── McpServerUnknown       RYN736
    │   └── McpServerFailed        RYN737
    └── InternalError              RYN900  a bug in Reyn
        └── ForeignAwait           RYN901
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import msgspec


class Finding(msgspec.Struct, frozen=True, order=True):
    """A problem at one position of a file, found by the loader, the configuration or lint."""

    file: str
    line: int
    column: int
    code: str
    message: str
    fix: str = ""
    severity: Literal["error", "warning", "info"] = "error"

    def __str__(self) -> str:
        mark = "" if self.severity == "error" else f" {self.severity}:"
        text = f"{self.file}:{self.line}:{self.column}: {self.code}{mark} {self.message}"
        return f"{text}\n  {self.fix}" if self.fix else text


class FindingKind(NamedTuple):
    """The meaning of a finding code, and the fix."""

    meaning: str
    fix: str


FINDINGS: dict[str, FindingKind] = {
    "RYN103": FindingKind(
        "The skill uses a feature that this version cannot execute (error), or allows such an op (warning).",
        "Remove the feature, or the op from `allowed_ops`.",
    ),
    "RYN110": FindingKind(
        "The file cannot be read: it is missing, too large or not UTF-8 text.",
        "Create the file, make it smaller than 1 MB, or save it as UTF-8.",
    ),
    "RYN111": FindingKind(
        "Invalid YAML: a syntax error, a duplicate key, a tag, or too much nesting.",
        "Correct the line. Quote a text that contains `: ` or starts with a special character, such as `[` or `*`.",
    ),
    "RYN112": FindingKind(
        "Unknown key.", "Correct the spelling, or remove the key. The skill language reference lists all keys."
    ),
    "RYN113": FindingKind(
        "A required key, or the instructions of a phase, are missing.",
        "Add the key. The instructions of a phase are the text below its front matter.",
    ),
    "RYN114": FindingKind(
        "A value has the wrong type or is out of range.",
        "Write a value that the message names. A list of one item is `[item]`, a text that looks like a number `'7'`.",
    ),
    "RYN115": FindingKind(
        "A name is invalid, reserved, or differs from the name of its file or folder.",
        "Use letters, digits, `_` and `-`, starting with a letter. `name: draft` belongs in `phases/draft.md`.",
    ),
    "RYN116": FindingKind(
        "`graph` or `entry` names a phase that has no file.", "Create `phases/NAME.md`, or correct the name."
    ),
    "RYN117": FindingKind(
        "A key names an artifact that has no file.",
        "Create `artifacts/NAME.yaml` with a JSON Schema, or correct the name.",
    ),
    "RYN118": FindingKind(
        "A phase has a key that belongs in skill.md: `output`, `next` or `permissions`.",
        "Move `permissions` to skill.md and `next` to its `graph`. Remove `output`: the next phase defines it.",
    ),
    "RYN119": FindingKind(
        "A phase cannot reach `end`.", "Add a path to the end in the graph of skill.md: `polish: [end]`."
    ),
    "RYN120": FindingKind(
        "A phase cannot be reached from the entry.", "Add the phase to the graph of skill.md, or delete its file."
    ),
    "RYN121": FindingKind(
        "Invalid JSON Schema, or a reference to another file.",
        "Correct the schema. A `$ref` can only refer to its own file: `#/$defs/NAME`.",
    ),
    "RYN122": FindingKind(
        "Unknown op.", "Correct the spelling in `allowed_ops`, or install the package that provides the op."
    ),
    "RYN123": FindingKind(
        "A step is malformed, of an unknown kind, or not allowed there.",
        "Write a mapping with one key, the kind of the step: `- python: {module: count.py, function: words}`.",
    ),
    "RYN124": FindingKind(
        "A path of a step (`into`, `args_from`, `over`, `target`) does not exist in the schema.",
        "Correct the path, or add the field to the schema of the artifact.",
    ),
    "RYN125": FindingKind(
        "The module or function of a python step is missing, invalid, or outside the skill's folder.",
        "Create the file in the skill's folder, with a function of that name that takes the artifact.",
    ),
    "RYN126": FindingKind(
        "A python step has no matching entry under `permissions.python`.",
        "Add the entry to skill.md: `python: [{module: count.py, function: words}]` under `permissions`.",
    ),
    "RYN127": FindingKind(
        "An op needs a permission that skill.md does not request.",
        "Add the permission under `permissions` in skill.md: `file.write: [reports/]`.",
    ),
    "RYN128": FindingKind(
        "A requested permission is not used.", "Remove the request, or add an op that needs it to `allowed_ops`."
    ),
    "RYN129": FindingKind(
        "A permission for unsafe Python has no reason.",
        "Add `reason: …` to the entry under `permissions.python`. The operator reads it before granting it.",
    ),
    "RYN130": FindingKind(
        "Instructions describe ops, output fields or other phases, which Reyn adds to the prompt.",
        "Remove the sentence, so that the prompt does not contain the same rule twice.",
    ),
    "RYN131": FindingKind(
        "Instructions contain a literal that small models may copy.",
        "Describe the value in words, or move it to the input.",
    ),
    "RYN132": FindingKind(
        "Members of an input union have the same schema and description.",
        "Give each artifact a description of its own, or use one type.",
    ),
    "RYN133": FindingKind(
        "A sub-skill's result does not match its successor's input, or it has several successors.",
        "Use the sub-skill's `final_output` as the input of the one phase that follows it.",
    ),
    "RYN134": FindingKind(
        "Skills run each other in a cycle, or are nested too deep.", "Remove one of the references between the skills."
    ),
    "RYN135": FindingKind(
        "The skill is written in the older form, which can be rewritten automatically.",
        "Rewrite the skill, automatically or by hand. The older form still runs.",
    ),
    "RYN136": FindingKind(
        "Two file names differ only in case or Unicode normalization.",
        "Rename one of the files. Some file systems cannot store both.",
    ),
    "RYN137": FindingKind(
        "Unknown permission.",
        "Correct the spelling. The keys are `file.read`, `file.write`, `web`, `exec`, `python` and others.",
    ),
    "RYN138": FindingKind(
        "A symbolic link points outside the folder of the skill or the shared folder; Reyn does not follow it.",
        "Replace the link by a copy of the file.",
    ),
    "RYN139": FindingKind(
        "The references of a JSON Schema expand to too many schemas.",
        "Use fewer nested `$ref`s, or write the repeated part as an array or a string.",
    ),
    "RYN143": FindingKind(
        "A phase is named `end` or `abort`, which are choices of every phase.", "Rename the phase and its file."
    ),
    "RYN144": FindingKind(
        "A phase has several candidates, and the graph does not say when to choose one of them.",
        "Write a text for each candidate: `review: {draft: it needs more work, end: it is ready}`.",
    ),
    "RYN145": FindingKind(
        "Two candidates of a phase have the same text, so the model cannot distinguish them.",
        "Give each candidate a text of its own in the graph.",
    ),
    "RYN146": FindingKind(
        "No path to a phase produces an artifact that it reads.",
        "Remove the artifact from `reads`, or let an earlier phase produce it.",
    ),
    "RYN151": FindingKind(
        "`context` selects a handoff field that does not exist.",
        "Use `goal`, `epic_id`, `verdicts`, `artifacts_produced`, `decisions_made`, `open_risks` or `narrative`.",
    ),
    "RYN152": FindingKind(
        "`context` selects a handoff field that no earlier phase can produce.",
        "Remove the field, add it to an artifact, or set `ask_handoff: true` in an earlier phase.",
    ),
    "RYN153": FindingKind(
        "`context` selects `narrative`, but `narrative_cap` is 0, which omits narratives.",
        "Raise `narrative_cap`, or remove `narrative`.",
    ),
    "RYN154": FindingKind(
        "The instructions of a phase alone exceed its `max_prompt_tokens`.",
        "Shorten the instructions, or raise `max_prompt_tokens` under `context`.",
    ),
    "RYN170": FindingKind(
        "Information: the sandbox that Reyn selects for a python step, and the reason.",
        "There is nothing to fix. `python.sandbox` in reyn.yaml selects the sandbox.",
    ),
    "RYN224": FindingKind(
        "A phase allows an op that changes the memory of a conversation, but the phase is not a conversation.",
        "Add `conversation: true` to the phase, or remove the op from `allowed_ops`.",
    ),
    "RYN524": FindingKind(
        "A phase or a skill requests a model class that `models` in the configuration does not define.",
        "Add the class to `models` in reyn.yaml, such as `light: openai:NAME`, or correct the name.",
    ),
    "RYN701": FindingKind(
        "Invalid key or value in the configuration.",
        "Correct the key or the value at the line or in the variable that the message names.",
    ),
}
"""Every finding code."""


class NextAction(msgspec.Struct, frozen=True):
    """The operation that continues a run. The CLI renders it as a command line; a program can call the operation.

    Attributes:
        verb: The operation.
        run_id: The run to apply it to.
        question_id: For `answer`, the open question.
        retry: For `resume`, whether to retry what failed.
        limit: For `resume`, the limit to raise; empty if it is unknown which one.
        value: A sufficient value for `limit`, if one is known.
        reply: For `answer`, an example of a reply as a user would type it; empty if none is known.
    """

    verb: Literal["answer", "resume", "fork", "chat"]
    run_id: str
    question_id: str | None = None
    retry: bool = False
    limit: str | None = None
    value: int | None = None
    reply: str = ""


class ReynError(Exception):
    """The base class of all errors.

    Attributes:
        code: The stable code of the class.
        hint: What to do next; an instance can override the hint of its class.
        action: The operation that continues the run, if the error is about a run and the operation is known.
        exit_code: The exit code of a command that ends with this error.

    A traceback shows the code and the hint below the message, as notes of the exception (PEP 678).
    """

    code: ClassVar[str] = "RYN000"
    hint: str = ""
    action: NextAction | None = None
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, action: NextAction | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.action = action
        self.set_hint(self.hint if hint is None else hint)

    def __str__(self) -> str:
        return self.message

    def set_hint(self, hint: str) -> None:
        """Replace the hint, also in the notes that a traceback shows."""
        if hint != self.hint:
            self.hint = hint
        self.__notes__ = [f"code: {self.code}", *([f"fix: {hint}"] if hint else [])]

    @property
    def own_hint(self) -> str:
        """The hint of the instance; empty if it is the hint of the class."""
        return "" if self.hint == type(self).hint else self.hint

    def as_json(self) -> dict[str, object]:
        """Return the error as a JSON object."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class FindingsError(ReynError):
    """An error with a list of findings, all of which are in the message."""

    def __init__(self, summary: str, findings: list[Finding]) -> None:
        self.findings = sorted(findings)
        super().__init__("\n".join([summary, *(str(finding) for finding in self.findings)]))

    def as_json(self) -> dict[str, object]:
        return super().as_json() | {"findings": [msgspec.to_builtins(finding) for finding in self.findings]}


# -- RYN1xx: skills ------------------------------------------------------------------------------------


class SkillError(ReynError):
    """A skill cannot be loaded."""

    exit_code = 2


class SkillNotFound(SkillError):
    """No skill has this name, or the path has no `skill.md`."""

    code = "RYN101"
    hint = "Use the name of a skill of the project, or the path of a folder with a `skill.md`."


class AgentNotFound(SkillError):
    """No agent has this name."""

    code = "RYN105"
    hint = "Use the name of a file in `reyn/agents/`, or `default`."


class MemoryNotFound(SkillError):
    """No memory has this name."""

    code = "RYN106"
    hint = "Use the name of a file in `reyn/memory/`, such as `tea`, or `designer/tea` for a memory of one agent."


class GraphvizUnavailable(SkillError):
    """A graph cannot be drawn as SVG: the program `dot` is not installed, or reports an error."""

    code = "RYN107"
    hint = "Install Graphviz, or draw the graph as text or Mermaid."


class AgentSkillInvalid(SkillError):
    """A folder is not an Agent Skill (agentskills.io), or is too large to import; nothing was written."""

    code = "RYN430"
    hint = "Pass a folder with a `SKILL.md` whose front matter has `name` and `description`."


class SkillNotExportable(SkillError):
    """A skill cannot be written in the format of Agent Skills; nothing was written."""

    code = "RYN431"
    hint = "Fix the skill, or choose another folder."


class SkillPlanInvalid(SkillError):
    """The plan of a skill has errors, so that no files can be rendered from it.

    Attributes:
        problems: What is wrong, one sentence each.
    """

    code = "RYN432"
    hint = "Fix every problem in the plan."

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(["the plan of the skill has errors:", *problems]))


class CaseInvalid(SkillError):
    """A case of a skill cannot be read, or the skill has none."""

    code = "RYN433"
    hint = "A case is a folder below `cases/` with `input.json`, `answers.jsonl` and `expected.json`."


class SkillInvalid(SkillError, FindingsError):
    """The skill's files have errors; each has a position and, if known, a fix."""

    code = "RYN102"
    hint = "Fix the errors and try again; the run was not started."


class SkillUnsupported(SkillError):
    """The skill is valid but uses a feature that this version cannot execute."""

    code = "RYN103"
    hint = "Remove the feature from the skill."


class FixImpossible(SkillError):
    """The older form of the skill cannot be rewritten without changing its meaning; no file was changed."""

    code = "RYN104"
    hint = "Fix the errors of the skill first, or rewrite it by hand."


class ManifestInvalid(SkillError):
    """A context manifest names a field that does not exist."""

    code = "RYN150"
    hint = "Use `goal`, `epic_id`, `verdicts`, `artifacts_produced`, `decisions_made`, `open_risks` or `narrative`."


class FunctionInvalid(SkillError):
    """A Python function cannot be a skill or a tool, because of its signature, a type or its docstring."""

    code = "RYN160"
    hint = "Change the signature, the type or the docstring that the message names."


class FunctionNotFound(SkillError):
    """A name of the form `module:function` does not refer to a function with `@llm_function`."""

    code = "RYN161"
    hint = "Write the module, a colon and the name of a function that is decorated with `@llm_function`."


class TemplateInvalid(SkillError):
    """A template parameter of a function's docstring has no value, or a value has no declared parameter."""

    code = "RYN162"
    hint = (
        "Declare the parameters with `template_params=`, and pass a value for each with `options(template_params=…)`."
    )


class ReturnInvalid(SkillError):
    """The result of a run cannot be converted to the return type of its function."""

    code = "RYN163"
    hint = "The type has changed since the run, or the run was resumed without its function. Call the function again."


class CallStopped(SkillError):
    """The run of a function call ended or stopped without a value.

    Attributes:
        run_id: The run.
        status: Its status, such as `failed` or `waiting`.
    """

    code = "RYN164"
    hint = "Inspect the run, fix the cause, then resume it."
    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        run_id: str = "",
        status: str = "",
        hint: str | None = None,
        action: NextAction | None = None,
    ) -> None:
        super().__init__(message, hint=hint, action=action)
        self.run_id = run_id
        self.status = status

    def as_json(self) -> dict[str, object]:
        return super().as_json() | {"run_id": self.run_id, "status": self.status}


class CallImpossible(SkillError):
    """A plain function is called inside the event loop that must execute it, which would block the loop."""

    code = "RYN165"
    hint = "Declare the function with `async def` and await it, or call it from a plain `def`."


# -- RYN2xx: inputs, answers, steps -------------------------------------------------------------------


class ContractError(ReynError):
    """An input, an answer or a step violates the contract of its phase."""

    exit_code = 2


class InputInvalid(ContractError):
    """The entry phase does not accept the input of the run."""

    code = "RYN201"
    hint = (
        "Pass the data of the entry phase's input type as a JSON object. Plain text is accepted only if that type is "
        "`user_message`."
    )


class AnswersRejected(ContractError):
    """The model's answers in a phase were rejected until `max_phase_retries` was used up."""

    code = "RYN202"
    hint = "Read the rejections and the answers, improve the instructions or the schema, then retry or fork the run."
    exit_code = 1


class StepFailed(ContractError):
    """A step of a preprocessor or postprocessor failed, or the postprocessor's output is invalid."""

    code = "RYN203"
    hint = (
        "Fix the cause that the message names, then retry; or set the step's `on_error` to continue without its result."
    )
    exit_code = 1


class SubRunFailed(ContractError):
    """A skill used as a node returned no artifact, or one that the next node does not accept."""

    code = "RYN204"
    hint = "Inspect the sub-run that the message names, then retry."
    exit_code = 1


class TranscriptInvalid(ContractError):
    """A tool call of a transcript has no result or several, or a result has no call."""

    code = "RYN220"
    hint = "Add exactly one result for every tool call, right after the message with the call."


class MutationInvalid(ContractError):
    """A patch of a transcript cannot be applied: it is unknown, or refers to something that does not exist."""

    code = "RYN221"
    hint = "Use the mutation classes of `reyn.context`, and ids that exist. The transcript was not changed."


class MessageInvalid(ContractError):
    """A message of a history cannot be sent: its role is unknown, a field is malformed, or its text is not Unicode."""

    code = "RYN222"
    hint = "Fix the message that the error names, or leave it out of the history."


class CompactionFailed(ContractError):
    """A conversation exceeds its token budget, and no sufficiently short summary could be written."""

    code = "RYN223"
    hint = "Raise the token budget of prompts, use a model that writes shorter summaries, or start a new conversation."
    exit_code = 1


# -- RYN3xx: permissions and approvals -----------------------------------------------------------------


class AccessError(ReynError):
    """Something is not permitted."""


class ApprovalExpired(AccessError):
    """A phase with `requires_approval` decided, but no user approved it within `limits.approval_seconds`."""

    code = "RYN301"
    hint = "Retry the run to visit the phase again. `limits.approval_seconds` sets how long an approval stays open."
    exit_code = 1


class ApprovalUnknown(AccessError):
    """No standing approval has this id."""

    code = "RYN302"
    hint = "Use the id of a standing approval."
    exit_code = 2


class SandboxUnavailable(AccessError):
    """No sandbox on this machine can isolate the code of an op or a python step. Nothing was executed."""

    code = "RYN330"
    hint = "Install bubblewrap, or the extra `sandbox` on a kernel with Landlock (Linux 6.12)."


class SandboxStartFailed(SandboxUnavailable):
    """A sandbox works on this machine, but could not start a process: too few processes, open files or memory."""

    code = "RYN331"
    hint = "Free the resource that the message names, or raise its limit; then retry the run."


# -- RYN4xx: runs and their storage -------------------------------------------------------------------


class JournalError(ReynError):
    """A run or its storage does not allow the operation."""


class RunNotFound(JournalError):
    """No run has this id or prefix, several have the prefix, or the run has no such event."""

    code = "RYN401"
    hint = "Use the id of a run of this project, or a prefix that only one run has."
    exit_code = 2


class RunBusy(JournalError):
    """Another process is executing the run."""

    code = "RYN402"
    hint = "Wait for the other process, or stop it and resume the run."


class AppendConflict(JournalError):
    """Another process appended to the run first; this one stops, so that the run has a single history."""

    code = "RYN403"
    hint = "Nothing is lost: the other process recorded its events. Check the status of the run before you resume it."


class ChainBroken(JournalError):
    """An event does not match its recorded hash, or an event is missing."""

    code = "RYN404"
    hint = "The journal was modified or is damaged; restore it from a backup."


class ReplayMismatch(JournalError):
    """Re-executing the recorded inputs derives an event that differs from the recorded one."""

    code = "RYN405"
    hint = "The journal was modified, or the rules changed without a new rules version."

    def __init__(self, message: str, *, seq: int, kind: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.seq = seq
        self.kind = kind


class BlobMissing(JournalError):
    """Content that an event refers to is missing, or does not match its hash."""

    code = "RYN406"
    hint = "The journal is damaged; restore it from a backup."


class EventInvalid(JournalError):
    """An event or message has an unknown kind or invalid data."""

    code = "RYN407"
    hint = (
        "An invalid event is not stored. If it is in the journal, the journal is damaged or was written by a newer "
        "version."
    )


class StoreUnavailable(JournalError):
    """The journal's database cannot be opened, read or written."""

    code = "RYN408"
    hint = (
        "Check that the disk has free space, that the state directory is writable and that no other program locks the "
        "database; then resume. Recorded events are not lost."
    )
    foreign_hint = "Inspect its runs. If they are yours, trust the project; if not, delete the file."
    """The hint for a journal that another user created."""


class RunIdTaken(JournalError):
    """The run id is in use by a run of a different skill, with a different input, or from a different project."""

    code = "RYN409"
    hint = "Use a new run id, or the skill and the input of the existing run."
    exit_code = 2


class RunNotResumable(JournalError):
    """The run cannot be resumed in its current status with these options."""

    code = "RYN410"
    hint = "Use the operation that continues a run of this status."
    exit_code = 2


class ConversationInvalid(JournalError):
    """The run is not a conversation with an agent, or the conversation has no such message."""

    code = "RYN426"
    hint = "Use the id of a conversation with an agent, and the number of one of its messages."
    exit_code = 2


class ChainTooDeep(JournalError):
    """Agents asked one another up to the limit, so a message was not sent. The result of the op says why."""

    code = "RYN437"
    hint = "Raise `agents.max_depth` in reyn.yaml, or leave `agents` out of one of the agents' files."
    exit_code = 2


class RunBlocked(JournalError):
    """This version of Reyn cannot execute the run: it does not support the rules version, or cannot read the skill."""

    code = "RYN411"
    hint = "The run stays readable. Fork it, or execute it with a version that supports it."
    exit_code = 7


class StoreDamaged(JournalError):
    """The journal's file is not a database, or its pages are damaged."""

    code = "RYN412"
    hint = "Nothing was written. Restore the file from a backup; keep the damaged file."


class RunIdInvalid(JournalError):
    """The text is not a valid run id."""

    code = "RYN413"
    hint = "Use at most 100 letters, digits, `.`, `_` and `-`, starting with a letter or digit."
    exit_code = 2


class QuestionUnknown(JournalError):
    """The run has no open question with this id."""

    code = "RYN414"
    hint = "Use the id of a question that is open."
    exit_code = 2


class ReplyInvalid(JournalError):
    """The reply does not match the schema of the question."""

    code = "RYN415"
    hint = "Pass a value that matches the schema of the question: JSON, or plain text if the question takes text."
    exit_code = 2


class UpgradeIncompatible(JournalError):
    """The run cannot switch to the current version of its skill, because its current phase has changed."""

    code = "RYN416"
    hint = "Resume with the run's own copy of the skill, or fork the run with the new version."
    exit_code = 2


class ForkImpossible(JournalError):
    """The run cannot be forked at this event: there is no such event, or no earlier event to fork from."""

    code = "RYN417"
    hint = "Choose an event at which a visit ends or the model is called."
    exit_code = 2


class ArchiveInvalid(JournalError):
    """An archive of exported runs cannot be read, is damaged or has a newer format; nothing was imported."""

    code = "RYN418"
    hint = "Verify the runs where they were exported, and export them again."
    exit_code = 2


class OpMissing(JournalError):
    """A run uses an op kind that is not installed. It can still be shown, verified and exported."""

    code = "RYN419"
    hint = (
        "Install the package that provides the op, list the tool under `tools`, or pass it to the runtime; then resume."
    )
    exit_code = 7


class RunInUse(JournalError):
    """A run cannot be deleted, because other runs need it: a fork that continues from it, its parent or a sub-run."""

    code = "RYN420"
    hint = "Delete the dependent runs as well, or keep all of them."
    exit_code = 2


class RunImported(JournalError):
    """The run was imported from an archive. It cannot be resumed, answered, cancelled or undone in this project."""

    code = "RYN421"
    hint = "Fork or rerun it with the settings of this project."
    exit_code = 2


class ArchiveTooLarge(JournalError):
    """An archive exceeds a limit of the import: total size, length of a line, runs or events. Nothing was imported."""

    code = "RYN422"
    hint = "If you trust the archive and have enough memory, raise the limit."
    exit_code = 2


class HistoryInvalid(JournalError):
    """The events of a run are in an order that no run produces, so its state cannot be derived."""

    code = "RYN423"
    hint = "The journal was modified or is damaged; restore it from a backup."


class HeadMismatch(JournalError):
    """No event of the run has the expected hash: its history was replaced or truncated."""

    code = "RYN424"
    hint = "Compare with a backup of the journal from the time when the hash was noted."


# -- RYN5xx: model calls ------------------------------------------------------------------------------


class ModelError(ReynError):
    """A model did not answer. Transient errors are retried, after `retry_after` seconds if the provider sets it.

    A call that `may_be_billed` although there is no answer is charged to the budgets in full.
    """

    is_transient: ClassVar[bool] = False
    retry_after: float | None = None
    may_be_billed: bool = True


class ModelUnknown(ModelError):
    """No adapter matches the name of the model, or no model is configured."""

    code = "RYN501"
    hint = (
        "Set `model:` in reyn.yaml to `ADAPTER:NAME`, such as `openai:NAME`, to `local`, or to a name under `models`."
    )
    may_be_billed = False
    exit_code = 2


class ModelUntrusted(ModelUnknown):
    """The project's own configuration names a model that needs trust, and the project is not trusted."""

    code = "RYN523"
    hint = "Trust the project, after a look at what it asks for, or select another model."


class ScriptInvalid(ModelError):
    """A file of scripted answers cannot be read."""

    code = "RYN502"
    hint = "Write a JSON Lines file: each line is one answer, a JSON object or a JSON string. Blank lines are skipped."
    may_be_billed = False
    exit_code = 2


class ScriptExhausted(ModelError):
    """The scripted model has no answer left for this call."""

    code = "RYN503"
    hint = "Add the missing answers to the file, then retry the run."
    may_be_billed = False


class RecordingMissing(ModelError):
    """The recorded run contains no answer to this request."""

    code = "RYN504"
    hint = "A prompt has changed since the recording. Compare the prompts, or use a live model."
    may_be_billed = False


class ModelBroken(ModelError):
    """A model raised an exception that is not a `ModelError`."""

    code = "RYN505"
    hint = "Fix the model's code, then resume the run. The traceback is logged to the logger `reyn.models`."


class ModelUnavailable(ModelError):
    """The server cannot be reached, or reports that it cannot answer now."""

    code = "RYN506"
    hint = "Check that the server is running and that `base_url` is correct, then try again."
    may_be_billed = False
    is_transient = True


class RateLimited(ModelError):
    """The provider limits the rate of requests, or the account has no quota left."""

    code = "RYN507"
    hint = "Wait and try again, or configure a `fallback` for the model."
    may_be_billed = False
    is_transient = True


class KeyRejected(ModelError):
    """The API key is missing, or the provider rejects it."""

    code = "RYN508"
    hint = "Set the model's `key:` in reyn.yaml to `secret://NAME` or `env://VARIABLE`, and store a valid key there."
    may_be_billed = False


class RequestRejected(ModelError):
    """The provider rejects the request; a retry would not help."""

    code = "RYN509"
    hint = "The message names the reason: the model's name, a setting, or the size of the request."
    may_be_billed = False


class ResponseIncomplete(ModelError):
    """The response ended before the answer did, or does not follow the protocol."""

    code = "RYN510"
    hint = "Try again. If the error persists, check proxies between this machine and the server."
    is_transient = True


class ModelNotInstalled(ModelError):
    """A package or the weights that a model needs are not installed."""

    code = "RYN511"
    hint = "Install the extra with `pip install 'reyn[EXTRA]'`, or download the weights that the message names."
    may_be_billed = False
    exit_code = 2


class PromptTooLong(ModelError):
    """The prompt exceeds the context window of the model."""

    code = "RYN512"
    hint = "Shorten the instructions or the input, or use a model with a larger context window."
    may_be_billed = False


class ModelTimeout(ModelError):
    """The model did not answer within its `timeout`."""

    code = "RYN513"
    hint = "Raise the model's `timeout` in reyn.yaml or use a faster model, then try again."
    is_transient = True


class SchemaRejected(ModelError):
    """The provider rejects the output format. `instead` names the format of the next attempt, if there is one."""

    code = "RYN514"
    hint = "Set the model's `mode` in reyn.yaml to one that its server supports."
    may_be_billed = False
    instead: str = ""


class PullFailed(ModelError):
    """The weights of a model could not be downloaded, or have an unexpected checksum."""

    code = "RYN515"
    hint = "Check the package index that pip uses, then try again. No partial download was stored."
    may_be_billed = False


class PriceUnknown(ModelError):
    """A budget limits money, and the price of a model is unknown."""

    code = "RYN520"
    hint = "Declare `price` for the model in reyn.yaml, or install the price table: `pip install 'reyn[prices]'`."
    may_be_billed = False


class CurrencyUnknown(ModelError):
    """A price is in a currency that `budgets` does not declare, or a run has a budget in another currency."""

    code = "RYN521"
    hint = "Declare the currency under `budgets.currencies` in reyn.yaml, with its value in `budgets.currency`."
    may_be_billed = False


class PriceInvalid(ModelError):
    """A model declares a price or a bound of its usage that is no valid amount, so its calls cannot be budgeted."""

    code = "RYN525"
    hint = (
        "Fix `price` or `usage_bound` of the model's class. Prices of a million tokens are from 0 to 9,000,000; "
        "`price` in reyn.yaml replaces the one of a configured class."
    )
    may_be_billed = False


class ImageInvalid(ModelError):
    """An image in a message does not exist, has an unknown format, or cannot be sent."""

    code = "RYN530"
    hint = "Use `load_image` with the path of an image file, or an `Image` with data or an HTTP URL."
    may_be_billed = False


class ChatStopped(ModelError):
    """A turn of a conversation ended without a reply: the model failed, a limit was reached, or a person must decide.

    Attributes:
        run_id: The run.
        status: Its status, such as `failed` or `waiting`.
        history: The conversation with the user's message and the completed part of the turn.
    """

    code = "RYN531"
    hint = "Continue the turn with `resume`, or send a new message. `history` of the error has the user's message."

    def __init__(
        self,
        message: str,
        *,
        run_id: str = "",
        status: str = "",
        history: Any = (),
        hint: str | None = None,
        action: NextAction | None = None,
    ) -> None:
        super().__init__(message, hint=hint, action=action)
        self.run_id = run_id
        self.status = status
        self.history = history


class AdapterInvalid(ModelError):
    """An adapter of an installed package, or a class named `package.module:Class`, cannot be loaded or is no model."""

    code = "RYN532"
    hint = "Fix the package or the class, or use another model."
    may_be_billed = False
    exit_code = 2


class CircuitOpen(ModelError):
    """Calls of an endpoint have failed several times in a row, so Reyn does not call it for a while."""

    code = "RYN533"
    hint = "Check the provider's status, wait and try again, or configure a `fallback` for the model."
    may_be_billed = False
    is_transient = True


class HookFailed(ModelError):
    """A hook raised an exception, or returned something that cannot change the transcript."""

    code = "RYN540"
    hint = "Fix the hook, then continue the run with a retry; the hook is called again."
    may_be_billed = False


# -- RYN3xx: permissions and trust ---------------------------------------------------------------------


class SecretRefused(AccessError, ModelError):
    """The secret is bound to other servers, so it is not sent to this one."""

    code = "RYN311"
    hint = "If you trust the server with the secret, bind the secret to its origin."
    may_be_billed = False


class ProjectUntrusted(AccessError, ModelError):
    """The project is not trusted, so its configuration cannot send a secret to a new server."""

    code = "RYN312"
    hint = "Review the settings of the project that grant access, then trust the project."
    may_be_billed = False


# -- RYN6xx: limits -----------------------------------------------------------------------------------


class LimitError(ReynError):
    """A limit stopped the run, or cannot be changed as requested."""

    exit_code = 3


class LimitUnknown(LimitError):
    """The limit to raise does not exist, or the new value is not larger than the current one."""

    code = "RYN601"
    hint = "Name the limit that stopped the run, and a larger value."
    exit_code = 2


class BudgetExceeded(LimitError, JournalError):
    """A reservation exceeds the cap of a budget, so the journal does not store it. The run stops before the call.

    Attributes:
        account: The account.
        limit: The limit to raise.
        cap: Its value.
        used: What was charged to the account.
        reserved: What other calls in progress have reserved.
        needed: What the call could use.
    """

    code = "RYN522"
    hint = "Raise the limit, or wait until the next day if it is a budget of the day."

    def __init__(self, account: str, limit: str, cap: int, used: int, reserved: int, needed: int) -> None:
        super().__init__(
            f"account `{account}`: {used} + {reserved} reserved + {needed} exceed `{limit}`, which is {cap}"
        )
        self.account = account
        self.limit = limit
        self.cap = cap
        self.used = used
        self.reserved = reserved
        self.needed = needed


# -- RYN7xx: configuration, secrets, installed ops ----------------------------------------------------


class ConfigError(ReynError):
    """The project, its configuration, its secrets or an installed op is invalid."""

    exit_code = 2


class ConfigInvalid(ConfigError, FindingsError):
    """`reyn.yaml`, `reyn.local.yaml`, a `REYN_*` variable or a flag contains an unknown key or an invalid value."""

    code = "RYN701"
    hint = "Fix the lines or variables that the message names."


class ProjectNotFound(ConfigError):
    """The project's folder does not exist, or cannot be written."""

    code = "RYN702"
    hint = "Use an existing folder that you can write to."


class FileExists(ConfigError):
    """A file that would be written exists already."""

    code = "RYN703"
    hint = "Use a different name, or move or delete the existing file. Reyn never overwrites it."


class SecretMissing(ConfigError):
    """A secret is neither stored nor set in the environment."""

    code = "RYN704"
    hint = "Store the secret, or set the environment variable `REYN_SECRET_<NAME>`."


class SecretStoreUnavailable(ConfigError):
    """The secret store cannot be accessed, or other users can read or change it."""

    code = "RYN705"
    hint = "Fix the problem that the message names, or set the environment variable `REYN_SECRET_<NAME>` instead."


class SecretNameInvalid(ConfigError):
    """The name of a secret is invalid, or a handle is not of the form `secret://NAME`. The input is not shown."""

    code = "RYN706"
    hint = "Use at most 64 capital letters, digits and `_`, starting with a letter: `OPENAI_API_KEY`."


class SecretValueInvalid(ConfigError):
    """The value of a secret cannot be scrubbed from text: it is empty, too short, too long, or a handle."""

    code = "RYN707"
    hint = "Use the value as it was issued: UTF-8 text of 6 to 8192 characters."


class OpInvalid(ConfigError):
    """An op cannot be registered: its kind is taken, or its specification is invalid."""

    code = "RYN708"
    hint = "Change the op's kind or specification."


class OpUnknown(ConfigError):
    """No op kind of that name is built in or installed."""

    code = "RYN709"
    hint = "Use an op kind that is built in or installed."


class UsageError(ConfigError):
    """The command line is invalid: an unknown command or option, a missing argument, or a value out of range."""

    code = "RYN710"
    hint = "Correct the command line."

    def __init__(self, message: str, *, usage: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.usage = usage

    def as_json(self) -> dict[str, object]:
        return super().as_json() | {"usage": self.usage}


class UserConfigUnavailable(ConfigError):
    """The user configuration cannot be read or written, or other users can change it."""

    code = "RYN711"
    hint = "Fix the problem that the message names. `XDG_CONFIG_HOME` selects a different folder."


class OriginInvalid(ConfigError):
    """The text is not an origin: the scheme, host and port of a server."""

    code = "RYN712"
    hint = "Write the scheme, the host and, if it is not the default, the port: `https://api.example.com:8443`."


class SettingUnknown(ConfigError):
    """The configuration has no key of that name."""

    code = "RYN719"
    hint = "Use a key of the configuration, or the name of a section such as `limits`."


class CounterUnavailable(ConfigError):
    """The exact token counter that the configuration asks for is not installed, or cannot count."""

    code = "RYN720"
    hint = "Run `pip install 'reyn[tokens]'`, or set `context.counter` to `auto`."


class ModuleUnloadable(ConfigError):
    """A Python module cannot be imported: from `tools` in the configuration, or a `module:function` argument."""

    code = "RYN730"
    hint = "Fix the error in the module, or its name. Reyn looks in the installed packages and the project's folder."


class McpDefinitionsInvalid(ConfigError):
    """The accepted definitions of an MCP server's tools cannot be read."""

    code = "RYN735"
    hint = "Connect to the server and accept its tools again."


class McpServerUnknown(ConfigError):
    """The configuration has no MCP server of that name."""

    code = "RYN736"
    hint = "Add the server under `mcp.servers` in reyn.yaml."


class McpServerFailed(ConfigError):
    """An MCP server cannot be reached, or does not answer."""

    code = "RYN737"
    hint = (
        "Run the server's `command` in a terminal, or open its `url`, to see whether it starts. Then correct "
        "`mcp.servers` in reyn.yaml."
    )


# -- RYN9xx: internal errors --------------------------------------------------------------------------


class InternalError(ReynError):
    """An unexpected error in Reyn itself."""

    code = "RYN900"
    hint = "This is a bug in Reyn. Please report it with its traceback."


class ForeignAwait(InternalError):
    """A visit awaited something other than an effect, which a replay could not repeat."""

    code = "RYN901"


def hint_of(code: str) -> str:
    """Return the hint of an error code."""
    return next((cls.hint for cls in all_errors() if cls.code == code), "")


def all_errors() -> list[type[ReynError]]:
    """Return every error class that has its own code, sorted by code."""

    def below(cls: type[ReynError]) -> list[type[ReynError]]:
        return [cls, *(error for child in cls.__subclasses__() for error in below(child))]

    return sorted({cls for cls in below(ReynError) if "code" in vars(cls)}, key=lambda cls: cls.code)
