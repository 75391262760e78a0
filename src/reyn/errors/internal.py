"""Errors that are bugs in Reyn (RYN9xx)."""

from __future__ import annotations

from reyn.errors.base import ReynError


class InternalError(ReynError):
    """An unexpected error in Reyn itself."""

    code = "RYN900"
    hint = "This is a bug in Reyn. Please report it with its traceback."


class ForeignAwait(InternalError):
    """A visit awaited something other than an effect, which a replay could not repeat."""

    code = "RYN901"
