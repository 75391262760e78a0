"""The spans of a run: model calls, ops, steps, children and waits, each from its intent to its outcome.

Imports no kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from reyn.journal import Body, Event, decode, kinds

SpanType = Literal["model", "op", "step", "child", "wait"]


class Span(msgspec.Struct, frozen=True):
    """Something that took time.

    Attributes:
        type: What it was.
        name: The model, the op, the step, the child's skill, or the reason of the wait.
        seq: The event of its intent.
        end_seq: The event of its outcome; 0 while there is none.
        start: When it began, in microseconds since 1970.
        end: When it ended; 0 while it goes on.
        status: How it ended, if the outcome says so.
        phase: The phase that it belongs to.
        run: The run of a child.
        tokens: The tokens of a model call.
    """

    type: SpanType
    name: str
    seq: int
    start: int
    end_seq: int = 0
    end: int = 0
    status: str = ""
    phase: str = ""
    run: str = ""
    tokens: int = 0


class SpanReader:
    """Collects the spans of a run, one event at a time.

    Attributes:
        spans: The spans so far, in the order in which they began.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._open: dict[tuple[SpanType, str], int] = {}
        self._phase = ""

    def take(self, event: Event) -> None:
        """Read the next event."""
        body = decode(event)
        if isinstance(body, kinds.PhaseStarted):
            self._phase = body.phase
        for span, key in _begun(body, event, self._phase):
            self._open[span.type, key] = len(self.spans)
            self.spans.append(span)
        for type_, key, status, tokens in _ended(body):
            index = self._open.pop((type_, key), None)
            if index is not None:
                self.spans[index] = msgspec.structs.replace(
                    self.spans[index], end=event.ts, end_seq=event.seq, status=status, tokens=tokens
                )


def _begun(body: Body, event: Event, phase: str) -> Iterator[tuple[Span, str]]:
    seq, ts = event.seq, event.ts
    match body:
        case kinds.LlmRequested(call=call, model=model):
            yield Span("model", model, seq, ts, phase=phase), call
        case kinds.OpStarted(call=call, op_kind=kind, op=op):
            yield Span("op", f"{kind} {op}".strip(), seq, ts, phase=phase), call
        case kinds.StepStarted(call=call, step=step):
            yield Span("step", step, seq, ts, phase=phase), call
        case kinds.ChildStarted(call=call, run=run):
            yield Span("child", body.skill or body.agent, seq, ts, phase=phase, run=run), call
        case kinds.WaitOpened(wait=wait):
            yield Span("wait", wait.reason, seq, ts, phase=phase, run=wait.run or ""), wait.id


def _ended(body: Body) -> Iterator[tuple[SpanType, str, str, int]]:
    match body:
        case kinds.LlmResponded(call=call, usage=usage):
            yield "model", call, "", usage.total if usage else 0
        case kinds.OpCompleted(call=call, status=status):
            yield "op", call, status, 0
        case kinds.StepCompleted(call=call, status=status):
            yield "step", call, status, 0
        case kinds.ChildEnded(call=call, state=state):
            yield "child", call, state, 0
        case kinds.WaitAnswered(wait=wait):
            yield "wait", wait, "", 0
        case kinds.WaitExpired(wait=wait):
            yield "wait", wait, "expired", 0
