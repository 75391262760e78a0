"""The gate: every side effect asks here first, and the verdict names the rule that decided.

Files are decided by zone. Other capabilities need a request of the skill and a grant of the operator.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reyn.workspace import Place, Roots

WRITABLE = "reyn"
"""The folder of the project that may be written to by default."""


class Allowed(msgspec.Struct, frozen=True):
    rule: str


class Denied(msgspec.Struct, frozen=True):
    rule: str
    reason: str


Verdict = Allowed | Denied


class Gate(msgspec.Struct, frozen=True):
    """What a run may do."""

    roots: Roots
    requested: frozenset[str] = frozenset()
    """The permission keys that the skill requests."""
    grants: Mapping[str, str] = {}
    """The operator's rule for each permission key: `allow` or `deny`."""

    def capability(self, key: str) -> Verdict:
        """Decide whether a run may use a capability other than files."""
        if key not in self.requested:
            return Denied("default: no request", f"the skill must request `{key}` under `permissions` in skill.md")
        if self.grants.get(key) == "allow":
            return Allowed(f"permissions: {key}: allow")
        if key in self.grants:
            return Denied(f"permissions: {key}: deny", f"the operator denies `{key}`")
        reason = f"the operator must grant `{key}`: add `{key}: allow` under `permissions` in reyn.yaml"
        return Denied("default: no grant", reason)

    def read(self, place: Place) -> Verdict:
        match place.zone:
            case "project":
                return Allowed("default: read the project")
            case "workspace":
                return _OWN
            case "kept":
                return Allowed("kept by this run")
            case "state":
                return _state(place)
            case "outside":
                return _beyond(place, "read", "The project and `workspace:<path>` can be read.")

    def write(self, place: Place) -> Verdict:
        match place.zone:
            case "project" if len(place.parts) > 1 and place.parts[0] == WRITABLE:
                return Allowed(f"default: write below {WRITABLE}/")
            case "workspace" if place.parts:
                return _OWN
            case "kept":
                return Denied(
                    "what is kept is only read", f"`{place.shown}` is a result that was kept; it stays as it is"
                )
            case "state":
                return _state(place)
            case _:
                return _beyond(place, "write", f"`{WRITABLE}/` and `workspace:<path>` can be written to.")


_OWN = Allowed("default: the run's own workspace")


def _state(place: Place) -> Denied:
    return Denied("the state directory is out of reach", f"`{place.shown}` belongs to Reyn's own records")


def _beyond(place: Place, deed: str, instead: str) -> Denied:
    return Denied(
        f"default: no {deed} elsewhere",
        f"to {deed} `{place.shown}` the skill must request `file.{deed}` for it in its `permissions`, and the operator "
        f"must grant it (not available in this version). {instead}",
    )
