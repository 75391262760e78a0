"""The names of errors, by which `retry` and `on_error` of a node tell errors apart.

An op, a tool, a python step or a sub-run names an error of its own; any other error has one of Reyn's names.
"""

from __future__ import annotations

import re
from typing import Any

ERROR_NAMES = {
    "timeout": "An op, a step, a tool, a model or a person took too long.",
    "rate_limited": "A provider or a server limits the rate of requests.",
    "rejected": "The model gave no answer that the contract, the checks and `must` accept.",
    "aborted": "The model gave up, or a sub-run was aborted or cancelled.",
    "limit": "A limit or a budget of the run was reached. Only `limit` stands for it, not `*`.",
    "denied": "A permission rule or a person does not permit what a step or a node does.",
    "failed": "Any other error without a name of its own.",
}
"""Reyn's own names of errors, with their meaning."""
ABORTED, DENIED, TIMEOUT = "aborted", "denied", "timeout"
LIMIT, ANY_ERROR, RATE_LIMITED, REJECTED, FAILED = "limit", "*", "rate_limited", "rejected", "failed"
TOO_MANY_REQUESTS = 429
"""The HTTP status of a server that limits the rate of requests."""
OF_STATUS = {"timeout": TIMEOUT, "denied": DENIED}
"""The name of the error of an op that names none, by the status of its result."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def is_error_name(name: object) -> bool:
    """Return whether a value can be the name of an error: lower case, digits and `_`."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def named_error(value: Any) -> tuple[str, str] | None:
    """Return the name and the message of an error as a value: `{"error": {"name": …, "message": …}}`.

    One whose name is not valid is `failed`, and its message begins with that name.
    """
    error = value.get("error") if isinstance(value, dict) and len(value) == 1 else None
    name = error.get("name") if isinstance(error, dict) else None
    if not isinstance(error, dict) or not isinstance(name, str):
        return None
    message = str(error.get("message") or name)[:2_000]
    return (name, message) if is_error_name(name) else (FAILED, f"{name[:100]}: {message}")


def name_of_result(result: dict[str, Any]) -> str:
    """Return the name of the error of an op from its result."""
    name = result.get("error_name")
    return str(name) if is_error_name(name) else OF_STATUS.get(str(result.get("status")), FAILED)


def is_named(name: str, names: object) -> bool:
    """Return whether an error is one of several names, of which `*` stands for every error but a limit."""
    found: Any = names
    return name in found or (ANY_ERROR in found and name != LIMIT)
