"""Where another run can go on from: the last place at or before an event at which a run stands still between two moves,
or has just asked its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.errors import ForkImpossible
from reyn.journal import Blob, Event, canonical, decode, encode, kinds, link
from reyn.kernel import versions
from reyn.kernel.inputs import to_artifact
from reyn.kernel.run_state import EMPTY, RunState, apply
from reyn.skills import pin
from reyn.workspace import Change, apply_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reyn.journal import Journal
    from reyn.kernel.briefs import Briefs
    from reyn.skills import Skill
    from reyn.workspace import Roots


class Cut(NamedTuple):
    """An event and the state of the run after it."""

    event: Event
    state: RunState


def cut_at(run_id: str, events: Iterable[Event], at: int | None, *, between_visits: bool) -> Cut:
    """The last place to go on from. Another input or another skill needs one between visits; another model may as well
    answer the question that was asked last."""
    state, found, last = EMPTY, None, 0
    for event in events:
        last = event.seq
        if at is not None and event.seq > at:
            break
        body = decode(event)
        state = apply(state, body, event.ts)
        asks = isinstance(body, kinds.LlmRequested) and not between_visits
        stands = not state.visit.is_open and state.ending is None and state.status == "running"
        if asks or stands:
            found = Cut(event, state)
    if at is not None and at > last:
        raise ForkImpossible(f"run `{run_id}` has no event {at}; its last event is {last}")
    if found is None:
        raise ForkImpossible(f"run `{run_id}` has no event at or before {at} to go on from")
    return found


def files_at(events: Iterable[Event]) -> dict[str, str | None]:
    """A run's own files as they were after some events: contents by path, null for what was deleted."""
    files: dict[str, str | None] = {}
    restoring: tuple[kinds.Change, ...] = ()
    for event in events:
        match decode(event):
            case kinds.WorkspaceUpdated(change=change):
                files[change.path] = change.after
            case kinds.RestoreStarted(changes=changes) | kinds.UndoStarted(changes=changes):
                restoring = changes
            case kinds.WorkspaceRestored(restored=restored) | kinds.UndoCompleted(restored=restored):
                files |= {change.path: change.before for change in restoring if change.path in restored}
    return {path: content for path, content in files.items() if path.startswith("workspace:")}


def rebuild(files: dict[str, str | None], roots: Roots, content: Callable[[str], bytes], token: str) -> None:
    """Make a run's own files as they were; what is there already stays."""
    for path, name in files.items():
        if name is not None:
            apply_change(Change(path, None, name), roots, content, f"{token}.{path}")


def fork_input(
    cut: Cut, used: Briefs, given: Any, content: Callable[[str], bytes], *, is_checked: bool
) -> dict[str, Any] | None:
    """The artifact that a fork begins with, if it is another one; what stays must fit a skill that was changed."""
    phase = cut.state.phase or used.skill.entry
    if not used.fits(phase):
        raise ForkImpossible(f"the skill `{used.skill.name}` has no phase `{phase}` to go on with")
    if given is not None:
        return to_artifact(given, used.skill, strict=used.settings.strict, node=phase)
    if is_checked:
        assert cut.state.visit.input is not None
        kept = msgspec.json.decode(content(cut.state.visit.input.hash))
        to_artifact(kept, used.skill, strict=used.settings.strict, node=phase)
    return None


def forked_event(
    run_id: str,
    origin: str,
    cut: Cut,
    model: str | None,
    artifact: dict[str, Any] | None,
    skill: Skill | None,
    specs: Blob | None,
) -> tuple[kinds.RunForked, tuple[Blob, ...]]:
    """The event that opens a fork, with the content that it names."""
    content = Blob.of(canonical(artifact)) if artifact is not None else None
    copy = pin(skill) if skill is not None else None
    started = cut.state.started
    assert started is not None
    forked = kinds.RunForked(
        run_id,
        kinds.ForkPoint(origin, cut.event.seq, cut.event.hash),
        model,
        kinds.ArtifactRef(artifact["type"], content.hash) if artifact is not None and content is not None else None,
        skill.name if skill is not None else None,
        copy.hash if copy is not None else None,
        None if started.rules == versions.RULES else versions.RULES,
        None if cut.state.wording == versions.WORDING else versions.WORDING,
        specs.hash if specs is not None else None,
    )
    return forked, tuple(blob for blob in (content, copy, specs) if blob is not None)


def seal(
    journal: Journal, run_id: str, after: Event, forked: kinds.RunForked, blobs: tuple[Blob, ...], now: int
) -> Event:
    """Store the event that opens a fork: it chains on the event that it goes on from."""
    raw, ts, seq = encode(forked), max(now, after.ts), after.seq + 1
    hashed = link(seq, ts, forked.kind, forked.version, raw, after.hash)
    event = Event(seq, run_id, ts, forked.kind, forked.version, raw, after.hash, hashed)
    journal.append(run_id, after.seq, [event], blobs)
    return event
