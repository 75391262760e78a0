"""What the steps of a visit have done that must not be done twice: unsafe ops, and sub-runs with unsafe ops.

A visit that repeats a failed one, or one that was rolled back, takes over the results of those that it would do again
with the same arguments.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from reyn.journal import Blob, canonical, digest, kinds


class CompletedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """An op or a sub-run of a step.

    Attributes:
        args: The digest of its arguments.
        call: Its call.
        result: The hash of its result; empty if it has none that can be taken over.
        acted: The unsafe ops that its children have completed or begun.
        summary: The reason of the last decision of a sub-run.
        handoff: The hash of the last handoff of a sub-run.
        is_child: Whether it is a sub-run.
    """

    args: str
    call: str
    result: str = ""
    acted: str = ""
    summary: str = ""
    handoff: str = ""
    is_child: bool = False


def _of_child(args: dict[str, Any], ended: kinds.ChildEnded) -> CompletedStep:
    """Return what a sub-run has done. One whose files are restored has no result that can be taken over."""
    identity = digest(canonical(args))
    if ended.artifact is None or ended.changes:
        return CompletedStep(identity, ended.call, acted=ended.acted, is_child=True)
    result, handoff = ended.artifact.hash, ended.handoff or ""
    return CompletedStep(identity, ended.call, result, ended.acted, ended.summary, handoff, is_child=True)


_LIST = msgspec.json.Decoder(list[CompletedStep])


class CompletedSteps:
    """The completed steps of a visit, and those of the attempts before it that it has not repeated yet."""

    def __init__(self, earlier: bytes = b"[]") -> None:
        """Begin a visit; `earlier` is the content of the attempts before it."""
        self._earlier = _LIST.decode(earlier)
        self._done: list[CompletedStep] = []
        self._repeated: dict[str, CompletedStep] = {}
        """What has no result and is done again, if a person decides so, by the call that does it."""
        self.sources: dict[str, str] = {}
        """The calls whose results steps have taken over, by the call of the step."""
        self.taken: list[CompletedStep] = []
        """Those whose results steps have taken over."""

    def take(self, args: dict[str, Any], call: str) -> CompletedStep | None:
        """Return what a step does not do again; `None` if it has to do what it does.

        If it has no result, a person decides; it stays among the completed steps if the step does nothing then.
        """
        if not self._earlier:
            return None
        identity = digest(canonical(args))
        found = next((one for one in self._earlier if one.args == identity), None)
        if found is None:
            return None
        self._earlier.remove(found)
        self._done.append(found)
        if found.result:
            self.sources[call] = found.call
            self.taken.append(found)
        else:
            self._repeated[call] = found
        return found

    def repeat(self, before: str, call: str) -> None:
        """Let a call repeat what an earlier call of this visit did without a result, if it did anything."""
        if (found := next((one for one in self._done if one.call == before), None)) is not None:
            self._repeated[call] = found

    def add(self, args: dict[str, Any], call: str, result: str = "", acted: str = "") -> None:
        """Add what a step has done, in place of what it has done again. Others with the same arguments stay."""
        self._add(CompletedStep(digest(canonical(args)), call, result, acted))

    def add_child(self, args: dict[str, Any], ended: kinds.ChildEnded) -> None:
        """Add a sub-run that acted, as `add` does."""
        self._add(_of_child(args, ended))

    def keep_child(self, args: dict[str, Any], ended: kinds.ChildEnded) -> None:
        """Add a sub-run whose result another attempt may produce again, but need not."""
        self._done.append(_of_child(args, ended))

    def _add(self, step: CompletedStep) -> None:
        if (repeated := self._repeated.pop(step.call, None)) is not None:
            self._done.remove(repeated)
        self._done.append(step)

    @property
    def acted(self) -> str:
        """The unsafe ops of the children of the steps; empty if there are none."""
        return " ".join(one.acted for one in self._done if one.acted)

    def drop_results(self) -> None:
        """Do not let another attempt take over the results of sub-runs, of which one is not valid.

        A person decides about those that acted. An unsafe op is not performed again in any case.
        """
        self._done = [replace(one, result="") if one.is_child or one.acted else one for one in self._done]

    def content(self) -> Blob | None:
        """Return what an attempt after this one takes over; `None` if there is nothing."""
        steps = [*self._done, *self._earlier]
        return Blob.of(canonical(msgspec.to_builtins(steps))) if steps else None
