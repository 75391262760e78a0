"""What all errors have in common: a code, a message, a hint, and for a run the operation that continues it."""

from __future__ import annotations

from typing import ClassVar, Literal

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


class NextAction(msgspec.Struct, frozen=True):
    """The operation that continues a run. The CLI renders it as a command line; a program can call the operation.

    Attributes:
        verb: The operation.
        run_id: The run to apply it to.
        question_id: For `answer`, the open question.
        retry: For `resume`, whether to retry what failed.
        limit: For `resume`, the limit to raise; empty if it is unknown which one.
        value: A sufficient value for `limit`, if one is known.
    """

    verb: Literal["answer", "resume", "fork", "chat"]
    run_id: str
    question_id: str | None = None
    retry: bool = False
    limit: str | None = None
    value: int | None = None


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

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        if cls.__module__.startswith("reyn.errors."):  # tracebacks show where users import it from
            cls.__module__ = "reyn.errors"

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


def hint_of(code: str) -> str:
    """Return the hint of an error code."""
    return next((cls.hint for cls in all_errors() if cls.code == code), "")


def all_errors() -> list[type[ReynError]]:
    """Return every error class that has its own code, sorted by code."""

    def below(cls: type[ReynError]) -> list[type[ReynError]]:
        return [cls, *(error for child in cls.__subclasses__() for error in below(child))]

    return sorted({cls for cls in below(ReynError) if "code" in vars(cls)}, key=lambda cls: cls.code)
