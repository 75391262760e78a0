"""The envelope that every result comes in, and what an op says that came to nothing."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from reyn.workspace import FileFault, PlaceInvalid

if TYPE_CHECKING:
    from reyn.ops.port import Call
    from reyn.permissions import Denied


class OpFailed(Exception):
    """An op that cannot be done as it is asked for; `more` goes into the result."""

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message)
        self.more = more


FAULTS = (OpFailed, FileFault, PlaceInvalid, OSError, MemoryError, RecursionError)
"""What may go wrong in an op without being a fault of Reyn."""


def result(call: Call, status: str, **more: Any) -> dict[str, Any]:
    op = {"op": call.op} if call.op is not None else {}
    return {"kind": call.kind, **op, "status": status, **more}


def error_result(call: Call, message: str, **more: Any) -> dict[str, Any]:
    return result(call, "error", error=message, **more)


def denied_result(call: Call, denied: Denied) -> dict[str, Any]:
    return result(call, "denied", error=denied.reason, rule=denied.rule)


def failed_result(call: Call, fault: Exception) -> dict[str, Any]:
    """One of the `FAULTS` as a result. An `OSError` is told without its path, which is this machine's own."""
    if isinstance(fault, OSError):
        return error_result(call, os.strerror(fault.errno or errno.EIO))
    if isinstance(fault, MemoryError | RecursionError):
        return error_result(call, "it asks for more than this machine has")
    return error_result(call, str(fault), **(fault.more if isinstance(fault, OpFailed) else {}))
