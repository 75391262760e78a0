"""Load a run from the journal as a tape, or begin a tape for a new run.

Completed visits are folded into the state; the events of the visit in progress stay on the tape to be re-executed. A
new run is a tape with one event, which names the run's own copies of skill, settings and op specifications.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from reyn.config import RunSettings
from reyn.config.values import PromptLimit
from reyn.errors import BlobMissing, OpMissing, RunBlocked, RunNotFound
from reyn.journal import GENESIS, Blob, Event, Journal, canonical, decode, kinds, ordered
from reyn.kernel import versions
from reyn.kernel.core.run_state import EMPTY, apply
from reyn.kernel.core.snapshot import Models, RunState
from reyn.kernel.core.tape import Tape
from reyn.kernel.visit.compiled_skill import CompiledSkill
from reyn.skills import Skill, pin, unpin
from reyn.vocabulary import OpSpec, Vocabulary

if TYPE_CHECKING:
    from reyn.journal.outside import EventWithBlobs
    from reyn.models.roster import Roster
    from reyn.ops import OpTable


_CACHED_SKILLS = 64
"""The number of compiled skills to cache; the oldest is dropped first."""


class Resumption(NamedTuple):
    """The options with which a driver continues a recorded run.

    Attributes:
        driver: The id of the driver.
        retry: Whether a failure is retried.
        skill: The name of the upgraded skill, if the run is upgraded.
        pinned: The copy of the upgraded skill.
        ops: The op specifications of the upgraded skill.
        is_model_override: Whether the caller named a model, which also ends switches to fallback models.
        is_suspended: Whether the run waited for sub-runs that workers execute.
        environment: The last environment that code ran in, if its packages have changed since.
    """

    driver: str
    retry: bool = False
    skill: str | None = None
    pinned: Blob | None = None
    ops: Blob | None = None
    is_model_override: bool = False
    is_suspended: bool = False
    environment: kinds.EnvironmentRef | None = None


def resumed_event(
    resumption: Resumption, state: RunState, roster: Roster, model: str, hooks: tuple[str, ...]
) -> EventWithBlobs:
    """Return how a run continues: with which model, and with which hooks of the program that executes it."""
    pinned = resumption.pinned
    is_new = resumption.is_model_override or model != state.models.name
    return kinds.RunResumed(
        resumption.driver,
        () if resumption.is_suspended else state.recovery.open_intents,  # the sub-runs that it waits for go on
        resumption.retry,
        model if is_new else None,
        resumption.skill,
        pinned.hash if pinned else None,
        None if state.wording == versions.WORDING else versions.WORDING,
        resumption.ops.hash if resumption.ops else None,
        roster.answer_form(model) if is_new else None,
        roster.prompt_limit(model) if is_new else None,
        hooks if hooks not in ((), state.started.hooks) else None,
        resumption.environment,
    ), tuple(blob for blob in (pinned, resumption.ops) if blob)


class CompiledSkills:
    """Compiles the skills of runs, from the runs' own copies and never from the current files."""

    def __init__(self, journal: Callable[[], Journal], vocabulary: Callable[[], Vocabulary]) -> None:
        self._journal = journal
        self._vocabulary = vocabulary
        """The current ops, for runs that name no copy of theirs."""
        self._compiled: dict[tuple[str, str, str | None], CompiledSkill] = {}

    def __call__(self, started: kinds.RunStarted, content: Callable[[str], bytes] | None = None) -> CompiledSkill:
        """Return the compiled skill of a run.

        Args:
            started: The first event of the run, which names the copies.
            content: Where to read the copies of a run that is not in the journal yet.
        """
        key = (started.skill_hash, started.settings, started.ops)
        if (found := self._compiled.get(key)) is not None:
            return found
        content = content or self._journal().blob
        try:
            skill, settings = content(started.skill_hash), content(started.settings)
            specs = content(started.ops) if started.ops else None
        except BlobMissing as error:
            raise RunBlocked(f"the run's own copy of its skill or settings is missing: {error}") from error
        vocabulary = unpin_ops(specs) if specs is not None else self._vocabulary()
        while len(self._compiled) >= _CACHED_SKILLS:
            self._compiled.pop(next(iter(self._compiled)))
        compiled = self._compiled[key] = CompiledSkill(unpin(skill), unpin_settings(settings), vocabulary)
        return compiled


class LoadedRun(NamedTuple):
    """A recorded run: the tape to execute it with, and the state after all recorded events."""

    tape: Tape
    state: RunState
    started: kinds.RunStarted


class Copies(NamedTuple):
    """A run's own copies of its skill, its input and its op specifications, and their content."""

    skill: str
    skill_hash: str
    input: kinds.ArtifactRef
    ops: str | None
    blobs: tuple[Blob, ...] = ()


def pin_run(skill: Skill, artifact: Blob, specs: Blob | None) -> Copies:
    """Return the copies of a skill, its input and the specifications of its ops."""
    copy = pin(skill)
    reference = kinds.ArtifactRef(_TYPE.decode(artifact.content).type, artifact.hash)
    blobs = (copy, artifact) if specs is None else (copy, artifact, specs)
    return Copies(skill.name, copy.hash, reference, specs.hash if specs else None, blobs)


def pin_model(roster: Roster, name: str) -> Models:
    """Return a model as a run records it, with the form of its answers and the size of its prompts."""
    return Models(name, roster.answer_form(name), prompt_limit=roster.prompt_limit(name))


class NewRun(NamedTuple):
    """The first event of a run of a user, a child, a trial or a preview, and the content that it refers to."""

    event: kinds.RunStarted
    blobs: tuple[Blob, ...]


def new_run(run_id: str, copies: Copies, settings: Blob, model: Models, *blobs: Blob, **fields: Any) -> NewRun:
    """Return how a run starts.

    Args:
        run_id: The run.
        copies: Its copies of the skill, the input and the ops.
        settings: Its settings.
        model: Its model.
        blobs: More content that the event refers to.
        fields: Other fields of `RunStarted`. Content is stored, and the field is its hash.
    """
    for name, value in fields.items():
        if isinstance(value, Blob):
            fields[name], blobs = value.hash, (*blobs, value)
    event = kinds.RunStarted(
        run_id=run_id,
        skill=copies.skill,
        skill_hash=copies.skill_hash,
        input=copies.input,
        model=model.name,
        answer_form=model.form,
        prompt_limit=None if model.prompt_limit == PromptLimit() else model.prompt_limit,
        settings=settings.hash,
        rules=versions.RULES,
        wording=versions.WORDING,
        ops=copies.ops,
        **fields,
    )
    return NewRun(event, (*copies.blobs, settings, *blobs))


def new_tape(content: Callable[[str], bytes], run: NewRun, *, now: int) -> Tape:
    """Return the tape of a new run. `content` returns content that is stored already."""
    tape = _tape(content, run.event.run_id, _Place())
    tape.record(run.event, now, *run.blobs)
    return tape


def first_event(journal: Journal, run_id: str) -> kinds.RunStarted | None:
    """Return the first event of a run; `None` if there is no such run. A resumption may replace parts of it later."""
    event = next(iter(journal.read(run_id)), None)
    body = decode(event) if event is not None else None
    return body if isinstance(body, kinds.RunStarted) else None


class _TypedArtifact(msgspec.Struct):
    type: str


_TYPE = msgspec.json.Decoder(_TypedArtifact)


def pin_settings(settings: RunSettings) -> Blob:
    """Return the copy of the settings that a run records. Most runs have those of the one before."""
    known = _pinned_settings.get(id(settings))
    if known is None:
        _pinned_settings.clear()
        known = _pinned_settings[id(settings)] = (settings, Blob.of(canonical(settings)))
    return known[1]


_pinned_settings: dict[int, tuple[RunSettings, Blob]] = {}
"""The last copy of settings, by the object, which stays alive here."""


def unpin_settings(content: bytes) -> RunSettings:
    """Return the settings of a run from its recorded copy. Raises `RunBlocked` if the copy cannot be read."""
    try:
        return msgspec.json.decode(content, type=RunSettings)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RunBlocked(f"the run's own copy of its settings cannot be read: {error}") from error


def pin_ops(skill: Skill, vocabulary: Vocabulary) -> Blob:
    """Return the specifications of every op that a run of a skill may be offered, as the copy that the run records."""
    kinds = skill.op_kinds
    known, found = _pinned.get((id(vocabulary), kinds), (None, None))
    if found is None or known is not vocabulary:
        specs = [spec for spec in vocabulary.ops if spec.kind in kinds or spec.when_truncated]
        found = Blob.of(ordered(specs))
        while len(_pinned) >= _MAX_PINNED:
            _pinned.pop(next(iter(_pinned)), None)
        _pinned[id(vocabulary), kinds] = (vocabulary, found)
    return found


_pinned: dict[tuple[int, frozenset[str]], tuple[Vocabulary, Blob]] = {}
"""Recent copies of op specifications, by the vocabulary and the op kinds: encoding them costs a third of a visit."""
_MAX_PINNED = 64


def unpin_ops(content: bytes) -> Vocabulary:
    """Return the vocabulary of a run from its recorded copy.

    Raises:
        RunBlocked: the copy cannot be read.
    """
    try:
        specs = msgspec.json.decode(content, type=tuple[OpSpec, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RunBlocked(f"the run's copy of its op specifications cannot be read: {error}") from error
    return Vocabulary(specs)


def check_ops(run_id: str, skill: Skill, ops: OpTable) -> None:
    """Check that every op kind that a skill may use is installed.

    Raises:
        OpMissing: one is not.
    """
    missing = missing_ops(skill, ops)
    if missing:
        names = ", ".join(f"`{kind}`" for kind in missing)
        hint = OpMissing.function_hint.format(skill.function) if skill.function else None
        raise OpMissing(f"run `{run_id}` uses the op {names}, which is not installed", hint=hint)


def missing_ops(skill: Skill, ops: OpTable) -> tuple[str, ...]:
    """Return the op kinds that a skill may use and that are not installed."""
    return tuple(sorted(skill.op_kinds - ops.vocabulary.op_kinds))


def load_run(journal: Journal, run_id: str) -> LoadedRun:
    """Load a run in order to execute it. Reads the events that are new since the run was last loaded here.

    Raises:
        RunNotFound: There is no such run.
        RunBlocked: This version does not support the rules of the run.
    """
    folded = _fold(journal, run_id)
    started = check_executable(run_id, folded.head.state)
    return LoadedRun(_tape(journal.blob, run_id, folded.start, folded.open_visit), folded.head.state, started)


def load_uncancelled(journal: Journal, run_id: str) -> LoadedRun:
    """Load a run up to its cancellation, if a visit was in progress then; otherwise all of it. See `load_run`."""
    folded = _fold(journal, run_id)
    started, state = check_executable(run_id, folded.head.state), folded.start.state
    events = tuple(takewhile(lambda event: event.kind != kinds.RunCancelled.kind, folded.open_visit))
    for event in events:
        state = apply(state, decode(event), event.ts)
    return LoadedRun(_tape(journal.blob, run_id, folded.start, events), state, started)


def load_draft(journal: Journal, origin: str, own: Sequence[Event], blobs: Iterable[Blob]) -> LoadedRun:
    """Load a fork that is not recorded yet, from its own events and their content. See `load_run`."""
    run_id, first = own[0].run_id, own[0].seq
    shared = takewhile(lambda event: event.seq < first, journal.read(origin))
    folded, new = _extended(_Folded(), chain(shared, own)), {blob.hash: blob.content for blob in blobs}

    def content(name: str) -> bytes:
        return new[name] if name in new else journal.blob(name)

    started = check_executable(run_id, folded.head.state)
    return LoadedRun(_tape(content, run_id, folded.start, folded.open_visit), folded.head.state, started)


def load_head(journal: Journal, run_id: str) -> tuple[RunState, Tape]:
    """Return the state of a run and a tape at its end, for recording external events while no driver executes it."""
    head = _fold(journal, run_id).head
    if head.state is EMPTY:
        raise RunNotFound(f"no run `{run_id}`")
    return head.state, _tape(journal.blob, run_id, head)


def load_state(journal: Journal, run_id: str) -> RunState:
    """Return the state of a run. Reads the events that are new since the run was last loaded here."""
    return _fold(journal, run_id).head.state


class _Place(NamedTuple):
    """A place in a run: the state after an event, with seq, hash and ts of the event."""

    state: RunState = EMPTY
    seq: int = 0
    hash: str = GENESIS
    ts: int = 0


class _Folded(NamedTuple):
    """A run up to an event: the place there, the one before the visit in progress, and the events of that visit."""

    head: _Place = _Place()
    start: _Place = _Place()
    open_visit: tuple[Event, ...] = ()


def _tape(content: Callable[[str], bytes], run_id: str, place: _Place, recorded: tuple[Event, ...] = ()) -> Tape:
    state, seq, last, ts = place
    return Tape(run_id, state, seq=seq, hash=last, ts=ts, recorded=recorded, content=content)


_MIN_CACHED = 64
"""Events of a run below which folding it again costs little. A conversation is read after each of its turns."""
_MAX_CACHED = 64
_folds: WeakKeyDictionary[Journal, OrderedDict[str, _Folded]] = WeakKeyDictionary()
"""The folds of long runs that this process has loaded, by journal; the least recently used is dropped first."""


def _fold(journal: Journal, run_id: str) -> _Folded:
    """Fold a run. A long one continues from where this process left off, if the journal still has that event."""
    known = _folds.setdefault(journal, OrderedDict()).pop(run_id, None)
    folded = _continued(known, journal, run_id) if known is not None else None
    if folded is None:
        folded = _extended(_Folded(), journal.read(run_id))
    _keep(journal, run_id, folded)
    return folded


def keep_fold(journal: Journal, tape: Tape) -> None:
    """Keep the state of a run that was executed here, so that loading it again reads new events only."""
    if not tape.pending and tape.upcoming is None:
        head = _Place(tape.state, tape.seq, tape.hash, tape.ts)
        start = _Place(*tape.visit_start) if tape.visit_start else head
        _keep(journal, tape.run_id, _Folded(head, start, tuple(tape.visit_events)))


def _keep(journal: Journal, run_id: str, folded: _Folded) -> None:
    if folded.head.seq < _MIN_CACHED and not folded.head.state.conversations:
        return
    folds = _folds.setdefault(journal, OrderedDict())
    folds[run_id] = folded
    folds.move_to_end(run_id)
    while len(folds) > _MAX_CACHED:
        folds.popitem(last=False)


def _continued(known: _Folded, journal: Journal, run_id: str) -> _Folded | None:
    """Return a fold with the events that are new; `None` if the journal has another event where it ends."""
    head = known.head
    events = iter(journal.read(run_id, head.seq - 1))
    last = next(events, None)
    if last is None or last.seq != head.seq or last.hash != head.hash:
        return None
    return _extended(known, events)


def _extended(folded: _Folded, events: Iterable[Event]) -> _Folded:
    head, start, open_visit = folded.head, folded.start, list(folded.open_visit)
    state, last = head.state, None
    for event in events:
        after = apply(state, decode(event), event.ts)
        if after.visit.is_open:
            if not state.visit.is_open:
                start, open_visit = _Place(state, last.seq, last.hash, last.ts) if last else head, []
            open_visit.append(event)
        state, last = after, event
    if last is not None:
        head = _Place(state, last.seq, last.hash, last.ts)
    if not head.state.visit.is_open:
        start, open_visit = head, []
    return _Folded(head, start, tuple(open_visit))


def check_executable(run_id: str, state: RunState) -> kinds.RunStarted:
    """Check that a run exists and that this version supports its rules; return its first event."""
    if state is EMPTY:
        raise RunNotFound(f"no run `{run_id}`")
    if state.started.rules not in versions.SUPPORTED_RULES:
        raise unsupported_rules(run_id, state.started.rules)
    return state.started


def unsupported_rules(run_id: str, rules: int) -> RunBlocked:
    """Return the error that this version does not execute the rules of a run."""
    supported = ", ".join(map(str, sorted(versions.SUPPORTED_RULES)))
    return RunBlocked(f"run `{run_id}` follows rules {rules}; this version executes rules {supported}")
