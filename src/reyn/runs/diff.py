"""Compare two runs: find the first decision that differs, and its cause."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from reyn.cells import InNotebook, MimeBundle, bundle, element, html_table, mimebundle, preformatted
from reyn.errors import JournalError
from reyn.journal import Event, digest, kinds
from reyn.runs.event_lines import to_line
from reyn.runs.reader import ReadEvent, read_run
from reyn.texts import counted, truncated

if TYPE_CHECKING:
    from reyn.journal.kinds import FrameMessage

Cause = Literal[
    "input", "skill", "settings", "rules", "model", "message", "condition", "frame", "answer", "end", "outside"
]


_CAUSES = {
    "input": "their inputs differ",
    "skill": "their skills differ",
    "settings": "their settings differ",
    "rules": "their rules versions differ",
    "model": "the same prompt was sent to different models",
    "message": "the user's messages differ",
    "condition": "expressions of the skill have read different values",
    "frame": "their prompts differ",
    "answer": "the same model answered the same prompt differently",
    "end": "one run makes no further decisions",
    "outside": "prompt, model and answer are the same; something else differs, for example the result of an op",
}
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_MAX_INPUT = 80


class Decision(msgspec.Struct, frozen=True):
    """A decision of a model, or the end of the run."""

    seq: int
    call: str
    phase: str
    what: str
    """The effect of the decision, in a form that can be compared."""
    text: str = ""
    """The hash of the answer."""
    request: str = ""
    model: str = ""
    messages: tuple[Any, ...] = ()
    message: str = ""
    """The message that the decision answers, in a conversation after its first message. A long one ends in its hash."""
    read: dict[str, kinds.Scalar] = {}
    """The values that the expressions of the node have read."""
    is_end: bool = False
    """Whether this is the end of the run, which is no decision of a model."""


class DiffReport(InNotebook, msgspec.Struct, frozen=True):
    """The first difference of two runs. `cause` is `None` if they do not differ; `part` names the frame part that
    differs. `skill` has the changed lines if their skills differ."""

    a: str
    b: str
    decisions: int
    """The number of decisions before the first difference."""
    cause: Cause | None = None
    detail: str = ""
    part: str = ""
    in_a: Decision | None = None
    in_b: Decision | None = None
    skill: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        return self.cause is None


def diff_lines(report: DiffReport, content: Callable[[str], bytes] | None = None) -> Iterator[str]:
    """Yield a report as lines, with content in place of hashes if there is what returns it."""
    count = counted(report.decisions, "decision")
    if report.cause is None:
        yield f"{report.a} and {report.b} are identical: {count}"
        return
    differs = report.in_a or report.in_b
    yield f"{count} in common, then they diverge" if differs else f"{count}, all identical"
    for run, decision in ((report.a, report.in_a), (report.b, report.in_b)):
        if decision is not None:
            yield f"  {run}: {_decision_text(decision, content)}"
    detail = f": {report.detail}" if report.detail else ""
    yield f"{'cause' if differs else 'difference'}: {_CAUSES[report.cause]}{detail}"
    if report.part:
        yield f"frame section: {report.part}"
    yield from (f"  {line}" for line in report.skill)


def _decision_text(decision: Decision, content: Callable[[str], bytes] | None) -> str:
    def to_content(match: re.Match[str]) -> str:
        if content is None:
            return f"{match[0][:12]}…"
        try:
            return content(match[0]).decode(errors="replace")
        except JournalError:
            return match[0]

    where = f"event {decision.seq}, phase {decision.phase}" if decision.phase else f"event {decision.seq}"
    what = f"{decision.what}: {decision.text}" if decision.what.startswith("rejected") else decision.what
    return to_line(f"{where}: {_HASH.sub(to_content, what)}", 500)


@mimebundle.register(DiffReport)
def _(report: DiffReport) -> MimeBundle:
    first, *others = diff_lines(report)
    sides = ((report.a, report.in_a), (report.b, report.in_b))
    rows = [(element("code", run), _decision_text(one, None)) for run, one in sides if one is not None]
    rest = "\n".join(others[len(rows) :])
    parts = [html_table(("run", "first difference"), rows)] if rows else []
    return bundle("\n".join((first, *others)), element("b", first), *parts, *([preformatted(rest)] if rest else []))


class Side(msgspec.Struct, frozen=True):
    """One of the two runs. The input of `started` is the one that a fork replaced it with, if any."""

    run_id: str
    started: kinds.RunStarted
    decisions: list[Decision]


def compare(a: Side, b: Side, content: Callable[[str], bytes]) -> DiffReport:
    """Return the first decision that differs, with its cause."""
    common = 0
    for one, other in zip_longest(a.decisions, b.decisions):
        if one is not None and other is not None and _is_same(one, other):
            common += not one.is_end
            continue
        report = DiffReport(a.run_id, b.run_id, common, *_explain(a, b, one, other, content), one, other)
        break
    else:
        report = DiffReport(a.run_id, b.run_id, common, *(_start_difference(a, b, content) or ()))
    if report.cause != "skill":
        return report
    return replace(report, skill=_changed_lines(content(a.started.skill_hash), content(b.started.skill_hash)))


def _is_same(one: Decision, other: Decision) -> bool:
    """Compare rejected answers by their texts, and everything else by its effect."""
    if one.what.startswith("rejected") and one.text != other.text:
        return False
    return (one.what, one.phase, one.message) == (other.what, other.phase, other.message)


def _explain(
    a: Side, b: Side, one: Decision | None, other: Decision | None, content: Callable[[str], bytes]
) -> tuple[Cause, str, str]:
    """Return why two decisions differ, with both values, and the frame part that differs."""
    if one is not None and other is not None and one.phase == other.phase and one.read != other.read:
        return "condition", _read_difference(one, other), ""
    is_same_request = one is not None and other is not None and one.request == other.request != ""
    difference = None if is_same_request else _start_difference(a, b, content)
    if difference is not None:
        return *difference, ""
    if one is None or other is None:
        return "end", f"`{a.run_id if one is None else b.run_id}`", ""
    if one.phase == other.phase and one.read and not one.request:
        names = ", ".join(f"`{name}`" for name in one.read)
        return "condition", f"of {names}, the journal has a summary, which is the same", ""
    if one.message != other.message:
        return "message", f"{one.message!r} and {other.message!r}", ""
    if one.request != other.request:
        part, detail = _frame_difference(one, other, content)
        return "frame", detail, part
    if one.model != other.model:
        return "model", f"`{one.model}` and `{other.model}`", ""
    if one.text != other.text:
        return "answer", f"`{one.model}`", ""
    return "outside", "", ""


def _start_difference(a: Side, b: Side, content: Callable[[str], bytes]) -> tuple[Cause, str] | None:
    """Return the first difference between the inputs of two runs, and both values."""
    one, other = a.started, b.started
    if one.input.hash != other.input.hash:
        texts = [content(ref.hash).decode(errors="replace") for ref in (one.input, other.input)]
        return "input", " and ".join(truncated(text, _MAX_INPUT) for text in texts)
    if one.skill_hash != other.skill_hash:
        return "skill", f"`{one.skill}` {one.skill_hash[:12]} and `{other.skill}` {other.skill_hash[:12]}"
    if one.rules != other.rules:
        return "rules", f"{one.rules} and {other.rules}"
    if one.settings != other.settings:
        return "settings", ""
    return None


def side_of(run_id: str, events: Iterable[Event], content: Callable[[str], bytes]) -> Side:
    """Return a run as its decisions: every answer of a model with its effect, then the end of the run.

    A failure that was retried is no end.
    """
    found, ops, message = list[Decision](), list[str](), ""
    end: Decision | None = None
    values: dict[str, kinds.Scalar] = {}
    artifact: kinds.ArtifactRef | None = None
    last: ReadEvent | None = None
    for read in read_run(events):
        match read.body:
            case kinds.RunResumed():
                end = None
            case kinds.RunForked(input=replaced):
                end, artifact = None, replaced or artifact
            case kinds.MessageTaken(text=text):
                message = _comparable(content(text).decode(errors="replace"))
            case kinds.PhaseStarted():
                values = {}
            case kinds.RuleMatched(read=values) | kinds.ConditionsChecked(read=values):
                pass
            case kinds.FrameBuilt():
                if ops and last is not None:
                    found.append(replace(_decision(last, f"ops {' '.join(ops)}", message), read=values))
                ops = []
            case kinds.ValidationError(class_=rule, result=str()):
                ops.append(f"(rejected: {rule})")
            case kinds.ValidationError(class_=rule):
                found.append(replace(_decision(read, f"rejected: {rule}", message), read=values))
            case kinds.OpStarted(args=args) if read.follows_turn:
                ops.append(args)
            case kinds.PhaseCompleted(type=kind, next_phase=target):
                stored = read.after.output.artifact if kind != "abort" else None
                after = f" after {' '.join(ops)}" if ops else ""
                what = f"{kind} → {target or 'end'}{after} with {stored.hash if stored else ''}"
                found.append(replace(_decision(read, what, message), read=values))
                ops = []
            case kinds.SkillAborted() | kinds.SkillCompleted() | kinds.RunFailed() | kinds.RunCancelled() as body:
                end = replace(_decision(read, str(body.enters), message), seq=read.event.seq, is_end=True)
        last = read
    assert last is not None  # a run has a first event
    started = last.after.started
    decisions = found if end is None else [*found, end]
    return Side(run_id, replace(started, input=artifact or started.input), decisions)


def _decision(read: ReadEvent, what: str, message: str) -> Decision:
    """Return what the model decided in the turn of an event; a node that runs a skill decides without one."""
    state, turn = read.after, read.turn
    phase = state.path[-1] if state.path else ""
    if turn is None or not read.follows_turn:
        return Decision(read.event.seq, "", phase, what, model=state.models.name, message=message)
    return Decision(
        turn.answer_seq,
        turn.request.call if turn.request is not None else "",
        phase,
        what,
        turn.answer.text if turn.answer is not None else "",
        turn.request.request if turn.request is not None else "",
        state.models.name,
        (*turn.frame.messages, *_transcript(turn.frame.transcript)),
        message,
    )


def _read_difference(one: Decision, other: Decision) -> str:
    """Return the values that differ: `data.score` is 0.9 and 0.4."""
    both = one.read.keys() & other.read.keys()  # a rule that was not tried has read nothing
    names = [name for name in one.read if name in both and one.read[name] != other.read[name]]
    names = names or [name for name in {**one.read, **other.read} if name not in both]
    return "; ".join(f"`{name}` is {_shown(one, name)} and {_shown(other, name)}" for name in names)


def _shown(decision: Decision, name: str) -> str:
    return msgspec.json.encode(decision.read[name]).decode() if name in decision.read else "missing"


def _comparable(message: str) -> str:
    """Return a message in a form that can be compared and shown."""
    return message if len(message) <= _MAX_INPUT else f"{message[:_MAX_INPUT]}… ({digest(message.encode())[:16]})"


def _frame_difference(one: Decision, other: Decision, content: Callable[[str], bytes]) -> tuple[str, str]:
    """Return the heading of the first frame part that differs, and an excerpt of both."""
    texts = [_sections(decision.messages, content) for decision in (one, other)]
    for (heading, left), (_, right) in zip_longest(*texts, fillvalue=("", "")):
        if left != right:
            at = next(
                (i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), min(len(left), len(right))
            )
            begin = max(0, at - 30)
            detail = f"`{heading}`: …{left[begin : at + 60]!r} and …{right[begin : at + 60]!r}"
            return heading, detail
    return "results", "the results of earlier ops differ"


def _transcript(reference: kinds.TranscriptRef | None) -> tuple[FrameMessage, ...]:
    """Return a transcript that a frame refers to as a section that can be compared."""
    if reference is None:
        return ()
    text = f"# transcript\n{reference.length} messages, digest {reference.digest}"
    return (kinds.FrameMessage("user", (kinds.Part(text=text),)),)


def _sections(messages: tuple[FrameMessage, ...], content: Callable[[str], bytes]) -> list[tuple[str, str]]:
    parts: list[tuple[str, str]] = []
    for message in messages:
        text = "".join(
            f"results {part.digest}"
            if part.results
            else part.text
            if part.blob is None
            else content(part.blob).decode()
            for part in message.parts
        )
        heading = "contract" if message.role == "system" else message.role
        for block in ("\n" + text).split("\n# "):
            name, _, rest = block.partition("\n")
            parts.append((name.strip() or heading, rest))
    return parts


# -- skills -------------------------------------------------------------------------------------------

_MAX_LINES = 60
_MAX_WIDTH = 200


def _changed_lines(one: bytes, other: bytes) -> tuple[str, ...]:
    """Return what differs between two copies of a skill, as a diff with one heading for each part.

    Args:
        one: The copy of the first run.
        other: The copy of the second run.
    """
    found: list[str] = []
    try:
        changes = _skill_changes("", msgspec.json.decode(one), msgspec.json.decode(other))
        for line in changes:
            if len(found) == _MAX_LINES:
                return (*found, "…")
            found.append(truncated(line, _MAX_WIDTH))
    except msgspec.DecodeError:  # a copy of an archive is compared before it is executed
        return ()
    return tuple(found)


def _skill_changes(path: str, one: Any, other: Any) -> Iterator[str]:
    """Yield the differences of two values below a path: text line by line, other values as JSON."""
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _skill_changes(f"{path}.{key}" if path else key, one.get(key), other.get(key))
        return
    yield f"{path}:"
    for line in difflib.unified_diff(_value_lines(one), _value_lines(other), n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield line


def _value_lines(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return value.splitlines()
    items = value if isinstance(value, list) else [value]
    return [msgspec.json.encode(item).decode() for item in items]
