"""The unsafe ops that a run and the runs below it have completed, or that may have taken effect, from recorded events.

This is the one place that looks into the runs below a run: a retry, a rollback, a fork, an abort and a copy of the run
know from it what they must not do twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from reyn.journal import Event, Journal, canonical, decode, kinds
from reyn.journal.family import has_child
from reyn.texts import one_line, truncated

if TYPE_CHECKING:
    from reyn.kernel.core.snapshot import RunState

_MAX_CHARS = 200
_MAX_LISTED = 20
_NONE: Mapping[str, int] = {}
_TELLING = ("_started", "_completed", "_ended", "_denied", "_fulfilled")
_SILENT = frozenset(
    kind.kind
    for kind in (
        *(kinds.RunStarted, kinds.PhaseStarted, kinds.PhaseCompleted, kinds.StepStarted, kinds.StepCompleted),
        *(kinds.PostprocessorStarted, kinds.PostprocessorCompleted, kinds.SkillCompleted),
    )
)
"""Events with such names that say nothing about ops and children; decoding them would take most of the time."""


class UnsafeOp(NamedTuple):
    """An unsafe op: its kind and arguments in short, and whether it succeeded; otherwise its outcome is unknown."""

    text: str
    is_completed: bool


def unsafe_ops(journal: Journal, events: Iterable[Event], counted: Mapping[str, int] = _NONE) -> Iterator[UnsafeOp]:
    """Yield the unsafe ops of a run, and of the runs that it awaits, that succeeded or have no outcome.

    An op that failed has told the run so, unless it may have taken effect. Background runs act on their own.

    Args:
        journal: The journal of the runs.
        events: The events of the run that count.
        counted: The last event of each conversation with another agent that does not count.
    """
    ops: dict[str, tuple[str, str]] = {}
    begun: set[str] = set()
    children: dict[str, str] = {}
    """The runs that have not ended, by call."""
    known: set[str] = set()
    seen = dict(counted)
    for event in events:
        if not event.kind.endswith(_TELLING) or event.kind in _SILENT:
            continue
        match decode(event):
            case kinds.OpStarted(call=call, args=args) as started:
                ops[call] = args, event.run_id  # that of a fork's origin, if it began there
                if started.is_untracked:
                    begun.add(call)
            case kinds.RequestFulfilled(call=call):  # only unsafe ops have this intent
                begun.add(call)
            case kinds.OpCompleted() | kinds.PermissionDenied() as ended if ended.call in ops:
                args, _ = ops.pop(ended.call)
                is_completed = isinstance(ended, kinds.OpCompleted) and ended.status == "ok"
                if ended.call in begun and (is_completed or ended.may_have_effect):
                    yield UnsafeOp(_in_short(journal.blob(args)), is_completed)
            case kinds.ChildStarted(type="skill" | "agent", call=call, run=run):
                if run in known or has_child(journal, event.run_id, run):
                    known.add(run)
                    children[call] = run
            case kinds.ChildEnded(state="rejected"):
                pass  # it did not start; an earlier one that it would have repeated counts
            case kinds.ChildEnded(call=call, run=run, seq=seq, acted=acted):
                first = seen.get(run, 0)
                if acted and seq > first and (run in known or has_child(journal, event.run_id, run)):
                    yield from unsafe_ops(journal, islice(journal.read(run, first), seq - first))
                children.pop(call, None)
                seen[run] = max(seq, first)
    for run in dict.fromkeys(children.values()):
        yield from unsafe_ops(journal, journal.read(run, seen.get(run, 0)))
    for call, (args, performing) in ops.items():
        yield from _functions(journal, performing, call, seen)
        if call in begun:
            yield UnsafeOp(_in_short(journal.blob(args)), is_completed=False)


def _functions(journal: Journal, run_id: str, call: str, counted: Mapping[str, int] = _NONE) -> Iterator[UnsafeOp]:
    """Yield the unsafe ops of the functions that the code of an op in progress has called; no event names them yet."""
    for row in journal.runs(f"{run_id}.{call}."):
        if row.parent == run_id and row.run_id not in counted:
            yield from unsafe_ops(journal, journal.read(row.run_id))


def _in_short(content: bytes) -> str:
    args = msgspec.json.decode(content)
    rest = one_line(canonical({name: value for name, value in args.items() if name != "kind"}).decode())
    return f"`{args['kind']}` {truncated(rest, _MAX_CHARS)}"


def describe_unsafe(ops: Iterable[UnsafeOp]) -> str:
    """Return what unsafe ops have done, as sentences; empty if there are none."""
    found = list(ops)
    sentences = []
    for completed, before in ((True, "These ops were completed"), (False, "These ops may have taken effect")):
        texts = [op.text for op in found if op.is_completed is completed]
        if texts:
            more = f", and {len(texts) - _MAX_LISTED} more" if len(texts) > _MAX_LISTED else ""
            sentences.append(f"{before}: {', '.join(texts[:_MAX_LISTED])}{more}.")
    return " ".join(sentences)


def with_acted(ended: kinds.ChildEnded, journal: Journal, events: Iterable[Event]) -> kinds.ChildEnded:
    """Return the end of a child with the unsafe ops among some of its events. An error names them as well."""
    acted = describe_unsafe(unsafe_ops(journal, events))
    if not acted:
        return ended
    return replace(ended, acted=acted, error=f"{ended.error}. {acted}" if ended.error else "")


def open_children(journal: Journal, state: RunState) -> dict[str, str]:
    """Return the children of a run that have not ended, by call, with the unsafe ops of each.

    Functions belong to the call of the op that is being performed; they are left out if they have done nothing unsafe.
    """
    counted, recovery = counted_messages(state), state.recovery
    found = {call: acted for call, acted in recovery.children.items() if acted}
    for call in recovery.open_intents:
        if acted := describe_unsafe(_functions(journal, state.run_id, call)):
            found[call] = acted
    for call, run in state.visit.children.items():
        events = journal.read(run, counted.get(run, 0)) if has_child(journal, state.run_id, run) else ()
        found[call] = describe_unsafe(unsafe_ops(journal, events))
    return found


def counted_messages(state: RunState) -> dict[str, int]:
    """Return the last event of each conversation with another agent that belongs to a message which has ended."""
    return {thread.run: thread.seq for thread in state.threads.values()}
