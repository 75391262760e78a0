"""The base class of errors, and findings: problems at a position of a file."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

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

    def __init_subclass__(cls, **attributes: str | int) -> None:
        """Set what a class declares in its header: `class RunBusy(JournalError, code="RYN402")`."""
        for name, value in attributes.items():
            if not hasattr(cls, name):
                raise TypeError(f"`{cls.__name__}` declares the unknown attribute `{name}`")
            setattr(cls, name, value)
        if cls.__module__.startswith("reyn.errors."):
            cls.__module__ = "reyn.errors"  # the path that a traceback shows is the one that users import

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


class StoppedError(ReynError):
    """A run ended or stopped without the result that a caller waits for.

    Attributes:
        run_id: The run.
        status: Its status, such as `failed` or `waiting`.
    """

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


class InternalError(ReynError, code="RYN900"):
    """An unexpected error in Reyn itself."""

    hint = "This is a bug in Reyn. Please report it with its traceback."


class ForeignAwait(InternalError, code="RYN901"):
    """A visit awaited something other than an effect, which a replay could not repeat."""


def hint_of(code: str) -> str:
    """Return the hint of an error code."""
    return next((cls.hint for cls in all_errors() if cls.code == code), "")


def all_errors() -> list[type[ReynError]]:
    """Return every error class that has its own code, sorted by code."""

    def below(cls: type[ReynError]) -> list[type[ReynError]]:
        return [cls, *(error for child in cls.__subclasses__() for error in below(child))]

    return sorted({cls for cls in below(ReynError) if "code" in vars(cls)}, key=lambda cls: cls.code)
