"""The unsafe ops that a run and its sub-runs have completed, or that may have taken effect, from recorded events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reyn.journal import Journal, canonical, decode, kinds
from reyn.jsonschema.words import one_line

if TYPE_CHECKING:
    from reyn.vocabulary import Vocabulary

_MAX_CHARS = 200
_MAX_LISTED = 20


class UnsafeOp(NamedTuple):
    """An unsafe op: its kind and arguments in short, and whether it succeeded; otherwise its outcome is unknown."""

    text: str
    is_completed: bool


def unsafe_ops(journal: Journal, run_id: str, vocabulary: Vocabulary, after: int = 0) -> Iterator[UnsafeOp]:
    """Yield the unsafe ops of a run and its sub-runs after an event that succeeded or have no outcome, in order.

    An op that failed has told the run so. Background runs and conversations of other agents act on their own.
    """
    begun: dict[str, str] = {}
    for event in journal.read(run_id, after):
        match decode(event):
            case kinds.OpStarted(call=call, args=args, request=None):
                begun[call] = args
            case kinds.OpCompleted(call=call, status=status) if call in begun:
                text = _unsafe(journal.blob(begun.pop(call)), vocabulary)
                if status == "ok" and text:
                    yield UnsafeOp(text, is_completed=True)
            case kinds.PermissionDenied(call=call):
                begun.pop(call, None)
            case kinds.ChildStarted(type="skill", run=run) | kinds.ChildEnded(type="function", run=run):
                yield from unsafe_ops(journal, run, vocabulary)
    for args in begun.values():
        if text := _unsafe(journal.blob(args), vocabulary):
            yield UnsafeOp(text, is_completed=False)


def _unsafe(content: bytes, vocabulary: Vocabulary) -> str:
    """Return an unsafe op in short; empty if it is not unsafe."""
    args = msgspec.json.decode(content)
    form = vocabulary.form_of(args)
    if form is not None and form.effect_of(args) != "unsafe":
        return ""
    rest = one_line(canonical({name: value for name, value in args.items() if name != "kind"}).decode())
    return f"`{args['kind']}` {rest if len(rest) <= _MAX_CHARS else f'{rest[:_MAX_CHARS]}…'}"


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
