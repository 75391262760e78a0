"""The door: opens a project, starts, resumes, replays and verifies its runs. Wires the layers; holds no rule.

async with OSRuntime.open(".") as rt:
    result = await rt.run("hello", {"text": "..."})
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.config import RunSettings, load_config
from reyn.context import ContextFrame, Execution
from reyn.errors import (
    AnswerInvalid,
    ProjectNotFound,
    RunBlocked,
    RunBusy,
    RunIdInvalid,
    RunKeyTaken,
    RunNotResumable,
)
from reyn.journal import Answer, Blob, Cancel, RaiseLimit, canonical, decode, kinds
from reyn.kernel.briefs import Briefs
from reyn.kernel.commits import SharedCommits
from reyn.kernel.driver import Driver
from reyn.kernel.inputs import check_supported, to_artifact, unnamed_classes
from reyn.kernel.limits import act_turns
from reyn.kernel.live import InboxPolling, LiveWorld, answer_fault, inbox_events
from reyn.kernel.loading import Resumption, check_drivable, load_head, load_run, new_tape, opening
from reyn.kernel.op_performer import OpPerformer
from reyn.kernel.ports import Nobody, SystemClock, TimedIds
from reyn.kernel.run_state import EMPTY, ENDED, fold
from reyn.kernel.sub_runs import SubRuns
from reyn.models.roster import Roster
from reyn.runs.archive import import_runs
from reyn.runs.family import below
from reyn.runs.fork import cut_at, fork_input, forked_event, seal
from reyn.runs.questions import find_question
from reyn.runs.resume import check_fit, check_raise, check_resume
from reyn.runs.run_files import RunFiles
from reyn.runs.run_reader import RunReader
from reyn.runtime.stream import RunStream
from reyn.skills import Library, load_skill, pin
from reyn.skills.resolve import is_path
from reyn.vocabulary import STANDARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from reyn.config import Config
    from reyn.journal import Journal, RunRow
    from reyn.journal.port import Said
    from reyn.kernel.live import Listener, OnDelta
    from reyn.kernel.loading import Loaded
    from reyn.kernel.ports import Clock, Ids, People
    from reyn.kernel.run_state import RunState
    from reyn.kernel.runtime_types import RunResult
    from reyn.kernel.tape import Tape
    from reyn.models import Model
    from reyn.runs.archive import ImportReport
    from reyn.runs.fork import Cut
    from reyn.runs.undo import UndoReport
    from reyn.secrets import Secrets
    from reyn.skills import Skill
    from reyn.vocabulary import Vocabulary

STATE = ".reyn"


class _Observers(NamedTuple):
    """The callbacks of one call: for durable events, and for pieces of answers."""

    listener: Listener | None
    on_delta: OnDelta | None


_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class OSRuntime(RunReader):
    """One project and its runs. Every port can be handed in; what is not comes from the project."""

    def __init__(
        self,
        root: Path,
        config: Config,
        *,
        journal: Journal | None = None,
        model: Model | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        people: People | None = None,
        vocabulary: Vocabulary = STANDARD,
    ) -> None:
        self.root = root
        self.config = config
        super().__init__(vocabulary)
        self.library = Library(root)
        self.people: People = people or Nobody()
        self._given_journal = journal
        self._model = model
        self._clock = clock or SystemClock()
        self._ids = ids or TimedIds()
        self._driving: set[asyncio.Task[Any]] = set()
        self._polling = InboxPolling()

    @classmethod
    def open(
        cls,
        root: str | Path = ".",
        *,
        model: Model | str | None = None,
        journal: Journal | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        people: People | None = None,
        vocabulary: Vocabulary = STANDARD,
        **settings: Any,
    ) -> Self:
        """The project at `root`; further keywords override keys of its configuration."""
        folder = Path(root).resolve()
        if not folder.is_dir():
            raise ProjectNotFound(f"no folder `{root}`")
        if isinstance(model, str):
            settings["model"], model = model, None
        config = load_config(folder, settings)
        return cls(
            folder, config, journal=journal, model=model, clock=clock, ids=ids, people=people, vocabulary=vocabulary
        )

    @cached_property
    def journal(self) -> Journal:
        """Opened when it is first needed: a run that is refused leaves nothing behind."""
        if self._given_journal is not None:
            return self._given_journal
        from reyn.journal.sqlite import SqliteJournal

        return SqliteJournal(self.root / STATE)

    @cached_property
    def _commits(self) -> SharedCommits:
        return SharedCommits(self.journal)

    # -- starting and resuming ------------------------------------------------------------------------

    async def run(
        self,
        skill: str,
        input: Any = None,
        *,
        run_id: str | None = None,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        """Start a run and drive it until it ends or stops. With a `run_id` that exists, continue that run."""
        observers = _Observers(listener, on_delta)
        name = self._ids.new() if run_id is None else run_id
        if not _RUN_ID.fullmatch(name):
            raise RunIdInvalid(f"`{name}` cannot name a run")
        if run_id is not None and self._is_recorded(name):
            with self.journal.claim(name):
                return await self._run_again(name, skill, input, observers)
        loaded = self.load(skill)
        settings = RunSettings.of(self.config)
        artifact = Blob.of(canonical(to_artifact(input, loaded, strict=settings.strict)))
        model = self._roster.ready(self.config.model)
        with self.journal.claim(name):
            if self.journal.find(name) is not None:  # another process was faster
                return await self._run_again(name, skill, input, observers)
            return await self._begin(
                opening(name, loaded, settings, artifact, model=model, source=self._source(skill)), model, observers
            )

    def _source(self, skill: str) -> str | None:
        """The place of a skill that was not called by its name, as it is known in the project."""
        if not is_path(skill):
            return None
        place = Path(skill).resolve()
        return str(place.relative_to(self.root)) if place.is_relative_to(self.root) else str(place)

    async def _begin(
        self, first: tuple[kinds.RunStarted, tuple[Blob, ...]], model: str, observers: _Observers
    ) -> RunResult:
        tape = new_tape(self.journal, *first, now=self._clock.now())
        return await self._drive(tape, self._world(model, None, observers))

    def _is_recorded(self, run_id: str) -> bool:
        if self._given_journal is None and not (self.root / STATE / "journal.db").exists():
            return False
        return self.journal.find(run_id) is not None

    async def resume(
        self,
        run: str,
        *,
        retry: bool = False,
        raise_limits: Mapping[str, int | None] | None = None,
        model: str | None = None,
        upgrade: bool = False,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        """Continue a run that was interrupted; with `retry`, one that failed; with raised limits, one that a cap
        stopped. Another `model` than before is recorded as such; with `upgrade`, the skill as it is today, if it fits.
        """
        row, raised = self.find(run), raise_limits or {}
        with self.journal.claim(row.run_id):
            loaded = load_run(self.journal, row.run_id)
            if loaded.state.status in ENDED:
                if retry or raised:
                    hint = f"`reyn fork {row.run_id}` begins another run from it."
                    raise RunNotResumable(f"run `{row.run_id}` is {loaded.state.status}, for good", hint=hint)
                return self._to_result(loaded.state)
            check_raise(loaded.state, self._briefs_of(loaded.started).settings, raised)
            said = self.journal.drain(row.run_id, loaded.state.messages_taken)
            if not any(isinstance(message.said, Cancel) for message in said):
                check_resume(row.run_id, loaded.state, retry=retry, raised=raised, is_heard=self._is_heard(loaded))
            self._check_wanted(row)
            upgraded = self._upgraded(loaded) if upgrade else None
            self._roster.ready(model or loaded.state.model)
            for limit, value in raised.items():
                self.journal.post(row.run_id, RaiseLimit(limit, value))
            return await self._continue(
                loaded, _Observers(listener, on_delta), retry=retry, model=model, upgraded=upgraded
            )

    def _check_wanted(self, row: RunRow) -> None:
        """A sub-run that the run above went on without would only contradict it."""
        for event in self.journal.read(row.parent) if row.parent else ():
            body = decode(event)
            if isinstance(body, kinds.RunSkillCompleted) and f"{row.parent}.{body.call}" == row.run_id:
                raise RunNotResumable(
                    f"run `{row.parent}` went on without its sub-run `{row.run_id}`",
                    hint=f"`reyn fork {row.run_id}` goes on from it on its own.",
                )

    def _is_heard(self, loaded: Loaded) -> bool:
        """Whether a run that stopped with its sub-run, or waits, has what it needs by now, or somebody to ask."""
        wait = loaded.state.wait
        if loaded.state.status == "limited" and loaded.state.stopped_at is not None:
            below = self.journal.find(loaded.state.stopped_at)
            return below is None or below.status != "limited"
        if wait is None or not isinstance(self.people, Nobody):
            return True
        if wait.run is None:
            return bool(self.journal.drain(loaded.state.run_id, loaded.state.messages_taken))
        return fold(self.journal.read(wait.run)).wait is None or bool(
            self.journal.drain(wait.run, fold(self.journal.read(wait.run)).messages_taken)
        )

    def _upgraded(self, loaded: Loaded) -> Skill:
        """The skill as it is today, if the run can go on with it."""
        skill = self.load(loaded.started.source or loaded.started.skill)
        briefs = self._briefs_of(loaded.started)
        check_fit(loaded.state, briefs, Briefs(skill, briefs.settings, self.vocabulary), self.journal.blob)
        return skill

    def stream(
        self, skill: str, input: Any = None, *, run_id: str | None = None, on_delta: OnDelta | None = None
    ) -> RunStream:
        """Start a run and iterate over its events as they become durable; `.result` holds the result at the end."""
        return RunStream(lambda listener: self.run(skill, input, run_id=run_id, listener=listener, on_delta=on_delta))

    async def _run_again(self, run_id: str, skill: str, given: Any, observers: _Observers) -> RunResult:
        """The run of a key: go on if it was interrupted, else say how it stands. Works from the run's own copy."""
        loaded = load_run(self.journal, run_id)
        briefs = self._briefs_of(loaded.started)
        artifact = Blob.of(canonical(to_artifact(given, briefs.skill, strict=briefs.settings.strict)))
        is_other = not is_path(skill) and skill != loaded.started.skill
        if is_other or loaded.started.input.hash != artifact.hash:
            raise RunKeyTaken(f"run `{run_id}` is one of skill `{loaded.started.skill}`, with another skill or input")
        if loaded.state.status != "running":
            return self._to_result(loaded.state)
        return await self._continue(loaded, observers)

    async def _continue(
        self,
        loaded: Loaded,
        observers: _Observers,
        *,
        retry: bool = False,
        model: str | None = None,
        upgraded: Skill | None = None,
    ) -> RunResult:
        opened = self._roster.ready(model or loaded.state.model)
        resumption = Resumption(
            self._ids.new(),
            retry=retry,
            skill=upgraded.name if upgraded else None,
            pinned=pin(upgraded) if upgraded else None,
            is_other_model=model is not None,
        )
        return await self._drive(loaded.tape, self._world(opened, resumption, observers))

    def _world(self, model: str, resumption: Resumption | None, observers: _Observers) -> LiveWorld:
        """What surrounds one run; its sub-runs get the same, each with a resumption of its own."""

        async def drive(tape: Tape, resumption: Resumption | None) -> RunState:
            try:
                return await Driver(tape, self._briefs_for(tape), self._world(model, resumption, observers)).drive()
            finally:
                self._polling.notify(tape.run_id)

        sub_runs = SubRuns(self.journal, self._clock, self._ids, self.load, self._briefs_of, drive)
        ops = OpPerformer(self.root, self.root / STATE, lambda started: self._briefs_of(started).settings.sizes)
        return LiveWorld(
            self.journal,
            self._commits,
            model,
            self._roster,
            self._clock,
            ops,
            sub_runs,
            self.people,
            self._polling,
            resumption=resumption,
            listener=observers.listener,
            on_delta=observers.on_delta,
        )

    async def _drive(self, tape: Tape, world: LiveWorld) -> RunResult:
        task = asyncio.current_task()
        assert task is not None
        self._driving.add(task)
        try:
            async with self._commits.run_is_live():
                state = await Driver(tape, self._briefs_for(tape), world).drive()
        finally:
            self._polling.notify(tape.run_id)
            self._driving.discard(task)
        assert state.started is not None
        briefs = self._briefs_of(state.started, tape.content)
        return self._to_result(state, (*unnamed_classes(briefs.skill, briefs.settings), *world.warnings))

    # -- saying something to a run --------------------------------------------------------------------

    def answer(self, run: str, wait: str, value: Any) -> str:
        """Answer a question that is open at a run or below it; returns the run that asked. Whoever drives that goes on,
        or resumes it next."""
        question = find_question(self.journal, self.find(run), wait)
        fault = answer_fault(question.wait, wait, value)
        if fault:
            raise AnswerInvalid(fault)
        self._post(question.run_id, Answer(wait, value))
        return question.run_id

    def _post(self, run_id: str, message: Said) -> None:
        self.journal.post(run_id, message)
        self._polling.notify(run_id)  # a driver in this process takes it before its next effect

    def cancel(self, run: str, reason: str = "") -> None:
        """Stop a run and its sub-runs for good. Whoever drives it does so before its next effect; where nobody does, it
        is done here."""
        row = self.find(run)
        if row.status in ENDED:
            raise RunNotResumable(f"run `{row.run_id}` is {row.status} already", hint="There is nothing to cancel.")
        family = [run.run_id for run in (row, *below(self.journal, row.run_id)) if run.status not in ENDED]
        for name in family:
            self._post(name, Cancel(reason))
        for name in family:
            with suppress(RunBusy, RunBlocked), self.journal.claim(name):
                self._take_messages(name)

    def _take_messages(self, run_id: str) -> None:
        """Record what was said to a run that nobody drives. Its last event is a place where runs listen."""
        state, tape = load_head(self.journal, run_id)
        for body, blobs in inbox_events(self.journal.drain(run_id, state.messages_taken), state.wait):
            tape.record(body, self._clock.now(), *blobs)
        tape.flush_now(self.journal)

    # -- other runs from this one ---------------------------------------------------------------------

    async def fork(
        self,
        run: str,
        *,
        at: int | None = None,
        model: str | None = None,
        input: Any = None,
        skill: str | None = None,
        run_id: str | None = None,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        """A new run that goes on from an event of another, with another model, input or skill, and drive it."""
        row, name = self.find(run), self._new_id(run_id)
        changes = input is not None or skill is not None
        cut = cut_at(row.run_id, self.journal.read(row.run_id), at, between_visits=changes)
        assert cut.state.started is not None
        check_drivable(row.run_id, cut.state)
        forked, blobs = self._forked(name, row.run_id, cut, model, input, skill)
        opened = self._roster.ready(model or cut.state.model)
        if forked.model is not None:
            forked = msgspec.structs.replace(forked, model=opened)
        with self.journal.claim(name):
            self._files.make_again(name, row.run_id, cut.event)
            event = seal(self.journal, name, cut.event, forked, blobs, self._clock.now())
            world = self._world(opened, None, _Observers(listener, on_delta))
            world.show(event)
            return await self._drive(load_run(self.journal, name).tape, world)

    def _forked(
        self, name: str, origin: str, cut: Cut, model: str | None, given: Any, skill: str | None
    ) -> tuple[kinds.RunForked, tuple[Blob, ...]]:
        """What opens a fork, checked: a changed input fits the phase that takes it, a changed skill the input."""
        assert cut.state.started is not None
        loaded = self.load(skill) if skill is not None else None
        briefs = self._briefs_of(cut.state.started)
        used = Briefs(loaded or briefs.skill, briefs.settings, self.vocabulary)
        artifact = fork_input(cut, used, given, self.journal.blob, is_checked=loaded is not None)
        return forked_event(name, origin, cut, model, artifact, loaded)

    async def rerun(
        self,
        run: str,
        *,
        model: str | None = None,
        upgrade: bool = False,
        run_id: str | None = None,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        """A new run with the same input, settings and skill; with `upgrade`, the skill as it is today."""
        state, name = self.state(self.find(run).run_id), self._new_id(run_id)
        assert state.started is not None
        briefs = self._briefs_of(state.started)
        skill = self.load(state.started.source or state.started.skill) if upgrade else briefs.skill
        given = Blob(state.started.input.hash, self.journal.blob(state.started.input.hash))
        if upgrade:
            to_artifact(msgspec.json.decode(given.content), skill, strict=briefs.settings.strict)
        opened = self._roster.ready(model or state.started.model)
        with self.journal.claim(name):
            first = opening(name, skill, briefs.settings, given, model=opened, rerun_of=state.started.run_id)
            first = (msgspec.structs.replace(first[0], source=state.started.source), first[1])
            return await self._begin(first, opened, _Observers(listener, on_delta))

    def _new_id(self, run_id: str | None) -> str:
        name = self._ids.new() if run_id is None else run_id
        if not _RUN_ID.fullmatch(name):
            raise RunIdInvalid(f"`{name}` cannot name a run")
        if self._is_recorded(name):
            raise RunKeyTaken(f"there is a run `{name}` already", hint="Use another key.")
        return name

    def undo(self, run: str, *, dry_run: bool = False) -> UndoReport:
        """Put the files that a run and its sub-runs changed back as they were, newest first. What somebody else changed
        since is left alone."""
        return self._files.undo(self._family(run), dry_run=dry_run)

    def touched(self, run: str) -> dict[str, str]:
        """The files that a run and its sub-runs changed, with what became of each."""
        return self._files.touched(self._family(run))

    @cached_property
    def _files(self) -> RunFiles:
        sizes = self.config.sizes
        return RunFiles(self.root, self.root / STATE, self.journal, self._clock, sizes.file_bytes)

    def import_(self, lines: Iterable[bytes]) -> ImportReport:
        """Take exported runs in: whole and checked, or not at all. Their own files are made again."""
        report = import_runs(self.journal, lines)
        for run in (*report.imported, *report.known):
            events = list(self.journal.read(run))
            if fold(events).workspace == run:
                self._files.make_again(run, run, events[-1])
        return report

    # -- wiring ---------------------------------------------------------------------------------------

    def load(self, skill: str) -> Skill:
        """A skill by name or path, checked."""
        loaded = load_skill(self.library.find(skill), self.library)
        check_supported(loaded)
        return loaded

    def first_frame(self, skill: str, input: Any = None) -> ContextFrame:
        """What the model would see first. Without an input, the frame shows an empty one."""
        loaded = self.load(skill)
        settings = RunSettings.of(self.config)
        artifact = {"type": loaded.entry_inputs[0].name, "data": {}}
        if input is not None:
            artifact = to_artifact(input, loaded, strict=settings.strict)
        brief = Briefs(loaded, settings, self.vocabulary).of(loaded.entry, EMPTY)
        turns = act_turns(EMPTY, settings, brief.described.max_act_turns if brief.ops else 0)
        offer = brief.offer(acting=turns > 0, is_cut=False)
        return ContextFrame(offer.frame, artifact, Execution((loaded.entry,), 1, 1), turns if brief.ops else None)

    @cached_property
    def _roster(self) -> Roster:
        return Roster(self.config.models, self.root, self.journal, lambda: self.secrets, self._model)

    @cached_property
    def secrets(self) -> Secrets:
        from reyn.secrets import open_secrets

        return open_secrets()

    def _briefs_for(self, tape: Tape) -> Callable[[kinds.RunStarted], Briefs]:
        """The briefs of a run whose copies may not be in the journal yet."""
        return lambda started: self._briefs_of(started, tape.content)

    async def aclose(self) -> None:
        """Interrupt what is still being driven, resumably, and let go of the journal."""
        driving = self._driving - {asyncio.current_task()}
        for task in driving:
            task.cancel()
        if driving:
            await asyncio.wait(driving)
        if "_roster" in vars(self):
            await self._roster.close()
        if "_commits" in vars(self):
            self._commits.close()
        if "journal" in vars(self):
            self.journal.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
