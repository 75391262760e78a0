"""The interface of an op: what the kernel gives it and what it returns.

`plan` only looks and says what would happen, so that the intent can be recorded with its before-images. `perform` does
it and may be called again after a crash. An op that needs the kernel (a question to a person, a run of another skill)
returns a request in its plan; `perform` then receives the answer.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from reyn.journal import Blob
from reyn.journal.kinds import AskRequest, RunRequest
from reyn.permissions import Denied, Gate, NeedsApproval
from reyn.workspace import Change, FileFault, PlaceInvalid, Roots

if TYPE_CHECKING:
    from reyn.vocabulary import OpSpec

Result = dict[str, Any]
"""The result envelope: `kind`, `op` if the kind has several forms, `status`, and the fields of the form."""


class OpFailed(Exception):
    """The op cannot be executed as requested. `fields` are added to the error result."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields


class Call(msgspec.Struct, frozen=True):
    """One op to execute, valid against the form that the run was offered.

    `key` is unique among all runs and the same when the op is executed again after a crash, so it can serve as an
    idempotency key.
    """

    key: str
    args: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.args["kind"])

    @property
    def op(self) -> str | None:
        """The form: `read`, `write`, …; `None` for a kind with a single form."""
        return self.args.get("op")

    def ok(self, **fields: Any) -> Result:
        return self._result("ok", **fields)

    def error(self, message: str, **fields: Any) -> Result:
        return self._result("error", error=message, **fields)

    def timeout(self, message: str, **fields: Any) -> Result:
        return self._result("timeout", **fields, error=message)

    def denied(self, verdict: Denied | NeedsApproval) -> Result:
        return self._result("denied", error=verdict.reason, rule=verdict.rule)

    def _result(self, status: str, **fields: Any) -> Result:
        op = {"op": self.op} if self.op is not None else {}
        return {"kind": self.kind, **op, "status": status, **fields}

    def failed(self, error: BaseException) -> Result:
        """Return the error result for an exception.

        The message of an `OSError` leaves out the path, which belongs to this machine.
        """
        match error:
            case OpFailed():
                return {**error.fields, **self.error(str(error))}
            case FileFault() | PlaceInvalid():
                return self.error(str(error))
            case OSError():
                number = error.errno if isinstance(error.errno, int) and 0 < error.errno < 1_000 else errno.EIO
                return self.error(os.strerror(number))
            case MemoryError() | RecursionError():
                return self.error("the op needs more memory than is available")
        message = str(error)[:_LONGEST_ERROR].encode("utf-8", "backslashreplace").decode()
        return self.error(f"the op failed: {type(error).__name__}: {message}")


_LONGEST_ERROR = 500


class Env(msgspec.Struct, frozen=True):
    """What an op may use of the run that executes it. It never sees the runtime."""

    roots: Roots
    gate: Gate
    content: Callable[[str], bytes]
    """Returns recorded content by its hash."""
    kept: Mapping[str, str]
    """Hashes of truncated content, by the name that follows `workspace:.kept/`."""
    file_bytes: int
    """The maximum size of a file that is read or written."""


class Plan(msgspec.Struct, frozen=True):
    """What an op will do.

    - With `changes`, the kernel applies them and `result` is the result; `perform` is not called.
    - With a `request`, the kernel fulfils it and calls `perform` with its `answer`.
    - With a `result` alone, the op is complete.
    - Otherwise the kernel calls `perform`.
    """

    rule: str = ""
    """The permission rule that allows it; empty if the op failed before the gate was asked."""
    changes: tuple[Change, ...] = ()
    result: Result | None = None
    blobs: tuple[Blob, ...] = ()
    """Content that `changes` and `request` refer to. A plan that is read back from the journal has none."""
    request: AskRequest | RunRequest | None = None
    answer: Any = None
    """What the request returned: the person's answer, or a `RunOutcome`."""
    approval: str | None = None
    """The rule that wants a person to approve this action."""
    is_approved: bool = False


class RunOutcome(msgspec.Struct, frozen=True):
    """The outcome of a `RunRequest`: the final artifact of the sub-run, or why there is none."""

    run_id: str
    artifact: dict[str, Any] | None
    error: str = ""


@runtime_checkable
class Op(Protocol):
    """One kind of op. Whatever `plan` or `perform` raises becomes an error result; it never ends the run."""

    @property
    def spec(self) -> OpSpec: ...

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        """Look, and change nothing."""
        ...

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        """Execute the op and return its result envelope."""
        ...
