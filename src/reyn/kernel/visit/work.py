"""The work of a visit: what it must do before it can end, and the fields of its artifact that its ops fill.

Only ops that the model requests count: those of the visit, and those of attempts before it that it must not repeat.
Their outcomes are recorded, and a visit in flight is executed again from its record, so that recovery and replay find
the same work done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.context.render import work_note
from reyn.permissions.gate import ASK_RULE, DEFAULT_RULE

if TYPE_CHECKING:
    from reyn.contract import Duty
    from reyn.journal import kinds
    from reyn.journal.kinds import OpStatus
    from reyn.jsonschema import Schema
    from reyn.kernel.visit.compiled_phase import CompiledPhase


class _Deed(NamedTuple):
    """An op that succeeded: its arguments, and the hash of its result."""

    args: dict[str, Any]
    result: str


class _Denial(NamedTuple):
    """The last denial of a form: its result, how often the form was denied, and whether other arguments can help."""

    result: dict[str, Any]
    times: int
    is_correctable: bool


def duties_left(duties: tuple[Duty, ...], done: Iterable[str]) -> tuple[Duty, ...]:
    """Return the work that is left once ops of certain forms have succeeded."""
    forms = frozenset(done)
    return tuple(duty for duty in duties if duty.forms.isdisjoint(forms)) if forms else duties


class Work:
    """What the ops of one visit have done so far.

    Attributes:
        left: What the visit must still do.
    """

    def __init__(
        self, phase: CompiledPhase, content: Callable[[str], bytes], before: Iterable[kinds.DoneOp] = ()
    ) -> None:
        """Begin the work. `before` has the ops of earlier attempts that this one must not repeat: they count."""
        self._phase = phase
        self._content = content
        self._done: dict[str, _Deed] = {}
        self._denied: dict[str, _Denial] = {}
        for op in before:
            if op.args is not None and op.result is not None:
                self._done[op.form] = _Deed(msgspec.json.decode(content(op.args)), op.result)
        self.left = duties_left(phase.duties, self._done)

    def add(self, args: dict[str, Any], status: OpStatus, result: str) -> None:
        """Add an op of the visit. A failed one changes nothing, because the model may try again."""
        name = self._phase.vocabulary.name_of(args)
        if status == "ok":
            self._done[name] = _Deed(args, result)
            self.left = duties_left(self.left, (name,))
        elif status == "denied":
            self._deny(name, args["kind"], msgspec.json.decode(self._content(result)))

    def _deny(self, name: str, kind: str, result: dict[str, Any]) -> None:
        """Add a denial. By default, an op that needs no permission is allowed with other arguments."""
        spec = self._phase.vocabulary.op(kind)
        rule = str(result.get("rule", ""))
        is_default = rule.startswith(DEFAULT_RULE) and not rule.startswith(ASK_RULE)
        is_correctable = is_default and spec is not None and spec.permission is None
        before = self._denied.get(name)
        self._denied[name] = _Denial(result, before.times + 1 if before is not None else 1, is_correctable)

    @property
    def note(self) -> str:
        """What the prompt says: what is done of the work, and what is left."""
        done = (duty.name for duty in self._phase.duties if duty not in self.left)
        return work_note(done, (duty.name for duty in self.left))

    def fault(self, turns_left: int | None = None) -> str:
        """Return why the visit cannot do what is left; empty if it can. Without `turns_left`, by denials alone."""
        final = {
            name
            for name, denial in self._denied.items()
            if not denial.is_correctable or denial.times > self._phase.max_retries
        }
        what = f"phase `{self._phase.name}` must do"
        for duty in self.left:
            if duty.forms <= final:
                why = f"was denied{self._reasons(duty)}" if duty.forms else "is not available in this project"
                return f"{what} {duty.name}, which {why}"
        if self.left and turns_left == 0:
            names = " and ".join(duty.name for duty in self.left)
            denied = "".join(map(self._reasons, self.left))
            return f"{what} {names}, but has no act turns left{f'; the last was denied{denied}' if denied else ''}"
        return ""

    def _reasons(self, duty: Duty) -> str:
        """Return why the forms of a duty were denied."""
        denied = [self._denied[name].result for name in sorted(duty.forms) if name in self._denied]
        return "".join(f": {result.get('error') or result.get('rule')}" for result in denied)

    # -- the artifact ---------------------------------------------------------------------------------

    def fill(self, artifact: dict[str, Any], schema: Schema) -> tuple[dict[str, Any], str]:
        """Return an artifact with the fields that ops fill, and why that is impossible; empty if it is possible.

        Args:
            artifact: The artifact of the decision. A value that the model wrote for such a field is replaced.
            schema: The whole schema of its data. An op that fills a required field must have happened.
        """
        required = schema.get("required", ()) if isinstance(schema, dict) else ()
        if not isinstance(artifact["data"], dict):
            return artifact, f"phase `{self._phase.name}`: the data of `{artifact['type']}` is not an object"
        data: dict[str, Any] = {**artifact["data"]}
        for field, source in self._phase.sources.items():
            data.pop(field, None)
            deed = self._done.get(source.name)
            found = source.value(msgspec.json.decode(self._content(deed.result)), deed.args) if deed else ()
            if found:
                [data[field]] = found
            elif field in required:
                why = "has no such value" if deed else "did not happen in the visit"
                return artifact, f"phase `{self._phase.name}`: `{field}` cannot be filled: `{source.name}` {why}"
        return artifact | {"data": data}, ""
