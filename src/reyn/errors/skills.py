"""Errors of skills, agents and functions (RYN1xx)."""

from __future__ import annotations

from reyn.errors.base import FindingsError, NextAction, ReynError


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
