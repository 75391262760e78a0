"""Errors of permissions, approvals and trust (RYN3xx)."""

from __future__ import annotations

from reyn.errors.base import ReynError
from reyn.errors.models import ModelError


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
