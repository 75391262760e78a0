"""A place becomes a verdict that names its rule. The one gate: whatever touches a file asks here first.

Requests of skills, rules of the operator and approvals will be asked before the default zones say no.
"""

from __future__ import annotations

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
    """What a run may do with files."""

    roots: Roots

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
