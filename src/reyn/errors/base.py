"""The base class of errors, and findings: problems at a position of a file."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec


def surrogate_fault(text: str) -> str:
    """Return what is wrong with a text that is not valid Unicode; empty if it is valid."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"a lone surrogate at character {error.start}, which is not valid Unicode"
    return ""


def escape_surrogates(text: str) -> str:
    """Return a note or a message, which anything can print and record: lone surrogates are escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


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


class NextAction(msgspec.Struct, frozen=True):
    """The operation that continues a run. The CLI renders it as a command line; a program can call the operation.

    Attributes:
        verb: The operation.
        run_id: The run to apply it to.
        question_id: For `answer`, the open question.
        retry: For `resume`, whether to retry what failed.
        upgrade: For `resume`, whether to continue with the current version of the skill: the run's own copy would fail
            again.
        model: For `resume`, whether to call another model: this one would fail again.
        switches: The options without which the action would be denied, such as `--allow-unsafe-python`.
        limit: For `resume`, the limit to raise; empty if it is unknown which one.
        value: A sufficient value for `limit`, if one is known.
        reply: For `answer`, an example of a reply as a user would type it; empty if none is known.
    """

    verb: Literal["answer", "resume", "fork", "chat", "verify"]
    run_id: str
    question_id: str | None = None
    retry: bool = False
    upgrade: bool = False
    model: bool = False
    switches: tuple[str, ...] = ()
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
        error_name: The name by which `nodes` of skill.md handles the error. Exceptions of tools can have one, too.

    A traceback shows the code and the hint below the message, as notes of the exception (PEP 678).
    """

    code: ClassVar[str] = "RYN000"
    hint: str = ""
    action: NextAction | None = None
    exit_code: ClassVar[int] = 1
    error_name: ClassVar[str] = "failed"

    def __init_subclass__(cls, **attributes: str | int) -> None:
        """Set what a class declares in its header: `class RunBusy(JournalError, code="RYN402")`."""
        for name, value in attributes.items():
            if not hasattr(cls, name):
                raise TypeError(f"`{cls.__name__}` declares the unknown attribute `{name}`")
            setattr(cls, name, value)
        if cls.__module__.startswith("reyn.errors."):
            cls.__module__ = "reyn.errors"  # the path that a traceback shows is the one that users import

    def __init__(self, message: str, *, hint: str | None = None, action: NextAction | None = None) -> None:
        message = escape_surrogates(message)
        super().__init__(message)
        self.message = message
        self.action = action
        self.set_hint(self.hint if hint is None else hint)

    def __str__(self) -> str:
        return self.message

    def set_hint(self, hint: str) -> None:
        """Replace the hint, also in the notes that a traceback shows."""
        hint = escape_surrogates(hint)
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


def error_name_of(code: str) -> str:
    """Return the name of the errors with a code, by which `nodes` of skill.md handles them."""
    return next((cls.error_name for cls in all_errors() if cls.code == code), ReynError.error_name)


def all_errors() -> list[type[ReynError]]:
    """Return every error class that has its own code, sorted by code."""

    def below(cls: type[ReynError]) -> list[type[ReynError]]:
        return [cls, *(error for child in cls.__subclasses__() for error in below(child))]

    return sorted({cls for cls in below(ReynError) if "code" in vars(cls)}, key=lambda cls: cls.code)
