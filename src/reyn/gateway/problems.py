"""Problem documents (RFC 9457): every error of a request as `application/problem+json`, with its code and hint."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from reyn.errors import (
    AccessError,
    AgentNotFound,
    ConversationInvalid,
    FindingsError,
    ForkImpossible,
    GatewayError,
    InputInvalid,
    InternalError,
    JournalError,
    MemoryNotFound,
    QuestionUnknown,
    ReynError,
    RunBlocked,
    RunBusy,
    RunIdTaken,
    RunImported,
    RunInUse,
    RunNotFound,
    RunNotResumable,
    SkillNotFound,
    StoreDamaged,
    StoreUnavailable,
    TokenMissing,
    TooManyRequests,
)

PROBLEM = "application/problem+json"
_STATUSES: tuple[tuple[type[ReynError], int], ...] = (
    (RunNotFound, 404),
    (SkillNotFound, 404),
    (AgentNotFound, 404),
    (MemoryNotFound, 404),
    (StoreUnavailable, 503),
    (StoreDamaged, 500),
    (RunBusy, 409),
    (RunIdTaken, 409),
    (RunNotResumable, 409),
    (RunBlocked, 409),
    (RunImported, 409),
    (RunInUse, 409),
    (QuestionUnknown, 409),
    (ForkImpossible, 409),
    (ConversationInvalid, 409),
    (InputInvalid, 422),
    (AccessError, 403),
    (InternalError, 500),
    (JournalError, 422),
)
"""The HTTP status of an error; the first class that fits decides. All others are the caller's: 422."""


class ProblemDocument(msgspec.Struct, omit_defaults=True):
    """A problem document.

    Attributes:
        title: The name of the HTTP status.
        status: The HTTP status.
        detail: The message.
        type: Names the code as a URN.
        code: The code of the error.
        hint: What to do next.
        action: The operation that continues the run, if the error is about one.
        findings: The findings about a skill or a configuration.
    """

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    code: str = ""
    hint: str = ""
    action: dict[str, Any] | None = None
    findings: list[Any] = []


def status_of(error: ReynError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, GatewayError):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 422)


def problem_of(error: ReynError) -> ProblemDocument:
    """Return the problem document of an error."""
    status = status_of(error)
    findings = msgspec.to_builtins(error.findings) if isinstance(error, FindingsError) else []
    action = msgspec.to_builtins(error.action) if error.action is not None else None
    return ProblemDocument(
        HTTPStatus(status).phrase,
        status,
        str(error),
        f"urn:reyn:error:{error.code}" if error.code != "RYN000" else "about:blank",
        error.code,
        error.hint,
        action,
        findings,
    )


def problem_response(error: ReynError) -> Response:
    """Return the response to a request that failed."""
    problem = problem_of(error)
    headers = {}
    if isinstance(error, TokenMissing):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = "60"
    return Response(msgspec.json.encode(problem), problem.status, headers, PROBLEM)
