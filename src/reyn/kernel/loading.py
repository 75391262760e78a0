"""A journal becomes a tape: whole visits are folded into the state, the visit in flight is left to be driven again.
Starting is the same with an empty journal and one event to begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reyn.errors import ChainBroken, OpMissing, RunBlocked, RunNotFound
from reyn.journal import GENESIS, Blob, canonical, decode, kinds, link, ordered
from reyn.kernel import versions
from reyn.kernel.run_state import EMPTY, RunState, apply
from reyn.kernel.tape import Tape
from reyn.skills import op_kinds_of, pin
from reyn.vocabulary import PERMISSIONS, STEPS, OpSpec, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reyn.config import RunSettings
    from reyn.journal import Event, Journal
    from reyn.ops import OpTable
    from reyn.skills import Skill


class Resumption:
    """How a driver takes a recorded run over: under which name, whether to try a failure again, with which skill if it
    is another one than before; and whether somebody named the model, so that whoever took its place gives it back."""

    def __init__(
        self,
        driver: str,
        *,
        retry: bool = False,
        skill: str | None = None,
        pinned: Blob | None = None,
        ops: Blob | None = None,
        is_other_model: bool = False,
    ) -> None:
        self.driver = driver
        self.retry = retry
        self.is_other_model = is_other_model
        self.skill = skill
        self.pinned = pinned
        self.ops = ops


class Loaded(NamedTuple):
    """A run as it is recorded: the tape to drive it with, and the fold of everything on it."""

    tape: Tape
    state: RunState
    started: kinds.RunStarted


def new_tape(journal: Journal, started: kinds.RunStarted, blobs: tuple[Blob, ...], *, now: int) -> Tape:
    """The tape of a run that begins: one event, which pins everything that can change what the run does."""
    tape = Tape(started.run_id, EMPTY, seq=0, hash=GENESIS, ts=0, recorded=(), content=journal.blob)
    tape.record(started, now, *blobs)
    return tape


def opening(
    run_id: str,
    skill: Skill,
    settings: RunSettings,
    specs: Blob,
    artifact: Blob,
    *,
    model: str,
    rerun_of: str | None = None,
    source: str | None = None,
) -> tuple[kinds.RunStarted, tuple[Blob, ...]]:
    """The first event of a run, with its own copies of all that it names."""
    copy, pinned = pin(skill), Blob.of(canonical(settings))
    started = kinds.RunStarted(
        run_id=run_id,
        skill=skill.name,
        skill_hash=copy.hash,
        input=kinds.ArtifactRef(msgspec.json.decode(artifact.content)["type"], artifact.hash),
        model=model,
        settings=pinned.hash,
        rules=versions.RULES,
        wording=versions.WORDING,
        ops=specs.hash,
        rerun_of=rerun_of,
        source=source,
    )
    return started, (copy, pinned, specs, artifact)


def pin_ops(skill: Skill, vocabulary: Vocabulary) -> Blob:
    """Return the specifications of every op that a run of a skill may be offered, as the copy that the run records."""
    kinds = op_kinds_of(skill)
    specs = [spec for spec in vocabulary.ops if spec.kind in kinds or spec.when_truncated]
    return Blob.of(ordered(specs))


def unpin_ops(content: bytes) -> Vocabulary:
    """Return the vocabulary of a run from its recorded copy.

    Raises:
        RunBlocked: the copy cannot be read.
    """
    try:
        specs = msgspec.json.decode(content, type=tuple[OpSpec, ...])
    except msgspec.MsgspecError as error:
        raise RunBlocked(f"the run's copy of its op specifications cannot be read: {error}") from error
    return Vocabulary(specs, STEPS, PERMISSIONS)


def check_ops(run_id: str, skill: Skill, ops: OpTable) -> None:
    """Check that every op kind that a skill may use is installed.

    Raises:
        OpMissing: one is not.
    """
    missing = missing_ops(skill, ops)
    if missing:
        names = ", ".join(f"`{kind}`" for kind in missing)
        raise OpMissing(f"run `{run_id}` uses the op {names}, which is not installed")


def missing_ops(skill: Skill, ops: OpTable) -> tuple[str, ...]:
    """Return the op kinds that a skill may use and that are not installed."""
    return tuple(sorted(op_kinds_of(skill) - ops.vocabulary.op_kinds))


def load_run(journal: Journal, run_id: str) -> Loaded:
    """A run as far as it is recorded, read once."""
    before: RunState = EMPTY
    opened: list[Event] = []
    state, seq, hashed, ts = EMPTY, 0, GENESIS, 0
    for event in check_chain(journal.read(run_id)):
        body = decode(event)
        after = apply(state, body, event.ts)
        if after.visit.is_open and not state.visit.is_open:
            before, opened = state, []
        if after.visit.is_open:
            opened.append(event)
        else:
            before, opened, seq, hashed, ts = after, [], event.seq, event.hash, event.ts
        state = after
    started = check_drivable(run_id, state)
    tape = Tape(run_id, before, seq=seq, hash=hashed, ts=ts, recorded=opened, content=journal.blob)
    return Loaded(tape, state, started)


def load_head(journal: Journal, run_id: str) -> tuple[RunState, Tape]:
    """The fold of all that is recorded of a run, and a tape that stands at its end: for what is said to a run that
    nobody drives."""
    state, seq, hashed, ts = EMPTY, 0, GENESIS, 0
    for event in check_chain(journal.read(run_id)):
        state = apply(state, decode(event), event.ts)
        seq, hashed, ts = event.seq, event.hash, event.ts
    if state.started is None:
        raise RunNotFound(f"no run `{run_id}`")
    return state, Tape(run_id, state, seq=seq, hash=hashed, ts=ts, recorded=(), content=journal.blob)


def check_chain(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events, checking that each follows the one before."""
    prev = GENESIS
    for seq, event in enumerate(events, start=1):
        if event.seq != seq or link(seq, event.ts, event.kind, event.v, event.raw, prev) != event.hash:
            raise ChainBroken(f"event {seq} `{event.kind}` of run `{event.run_id}` does not give its recorded hash")
        prev = event.hash
        yield event


def check_drivable(run_id: str, state: RunState) -> kinds.RunStarted:
    """Return how a run was started.

    Raises:
        RunNotFound: there is no such run.
        RunBlocked: its rules are not supported.
    """
    if state.started is None:
        raise RunNotFound(f"no run `{run_id}`")
    check_supported_rules(run_id, state.started.rules)
    return state.started


def check_supported_rules(run_id: str, rules: int) -> None:
    if rules not in versions.SUPPORTED_RULES:
        supported = ", ".join(map(str, sorted(versions.SUPPORTED_RULES)))
        raise RunBlocked(f"run `{run_id}` follows rules {rules}; this version executes rules {supported}")
