"""Decide whether a run may perform a side effect.

Files are decided by the zone of their location. Any other capability needs a request by the skill and a grant by the
operator. Callers ask when an op is planned and again when it is performed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reyn.workspace import Location, Roots

WRITABLE_FOLDER = "reyn"
"""The folder of the project that runs may write to by default."""


class Allowed(msgspec.Struct, frozen=True):
    """The action is allowed by `rule`."""

    rule: str


class Denied(msgspec.Struct, frozen=True):
    """The action is denied by `rule`. `reason` says what is missing; the model and the operator see it."""

    rule: str
    reason: str


Verdict = Allowed | Denied


class Gate(msgspec.Struct, frozen=True):
    """The permissions of one run.

    Attributes:
        roots: The folders of the project and the run.
        requested: The permission keys that the skill requests.
        grants: The operator's rule for each permission key: `allow` or `deny`.
    """

    roots: Roots
    requested: frozenset[str] = frozenset()
    grants: Mapping[str, str] = {}

    def capability(self, key: str) -> Verdict:
        """Decide whether the run may use a capability other than files."""
        if key not in self.requested:
            return Denied("default: no request", f"the skill must request `{key}` under `permissions` in skill.md")
        if self.grants.get(key) == "allow":
            return Allowed(f"permissions: {key}: allow")
        if key in self.grants:
            return Denied(f"permissions: {key}: deny", f"the operator denies `{key}`")
        reason = f"the operator must grant `{key}`: add `{key}: allow` under `permissions` in reyn.yaml"
        return Denied("default: no grant", reason)

    def read(self, location: Location) -> Verdict:
        """Decide whether the run may read a file or list a folder."""
        match location.zone:
            case "project":
                return Allowed("default: read the project")
            case "workspace":
                return _WORKSPACE
            case "full_content":
                return Allowed("default: read truncated content")
            case "state":
                return _deny_state(location)
            case "outside":
                return _deny(location, "read", "the project", "Readable: the project and `workspace:<path>`.")

    def write(self, location: Location) -> Verdict:
        """Decide whether the run may create, change or delete a file."""
        match location.zone:
            case "project" if len(location.parts) > 1 and location.parts[0] == WRITABLE_FOLDER:
                return Allowed(f"default: write below {WRITABLE_FOLDER}/")
            case "workspace" if location.parts:
                return _WORKSPACE
            case "full_content":
                return Denied("default: truncated content is read-only", f"`{location.display_path}` is read-only")
            case "state":
                return _deny_state(location)
            case _:
                writable = f"`{WRITABLE_FOLDER}/` and `workspace:<path>`"
                return _deny(location, "write", f"{WRITABLE_FOLDER}/ and workspace:", f"Writable: {writable}.")


_WORKSPACE = Allowed("default: the run's own workspace")


def _deny_state(location: Location) -> Denied:
    return Denied(
        "default: no access to the state directory",
        f"`{location.display_path}` is in Reyn's state directory, which ops cannot access",
    )


def _deny(location: Location, action: str, zones: str, alternative: str) -> Denied:
    return Denied(
        f"default: no {action} outside {zones}",
        f"to {action} `{location.display_path}`, the skill must request `file.{action}` in its `permissions` and the "
        f"operator must grant it (not available in this version). {alternative}",
    )
