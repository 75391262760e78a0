"""The door: opens a project, starts, resumes, replays and verifies its runs. Wires the layers; holds no rule.

async with OSRuntime.open(".") as rt:
    result = await rt.run("hello", {"text": "..."})
"""

from __future__ import annotations

import asyncio
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import RunSettings, load_config
from reyn.context import ContextFrame, Execution
from reyn.errors import (
    BlobMissing,
    ChainBroken,
    ProjectNotFound,
    RunBlocked,
    RunIdInvalid,
    RunKeyTaken,
    RunNotFound,
    RunNotResumable,
)
from reyn.journal import Blob, Cancel, RaiseLimit, canonical, kinds
from reyn.kernel.briefs import Briefs
from reyn.kernel.commits import SharedCommits
from reyn.kernel.driver import Driver
from reyn.kernel.inputs import check_supported, to_artifact, unoffered_ops
from reyn.kernel.live import LiveWorld, Resumption
from reyn.kernel.loading import load_run, new_tape
from reyn.kernel.ports import SystemClock, TimedIds
from reyn.kernel.replayer import Replayer, verify
from reyn.kernel.resuming import ENDED, check_raise, check_resume
from reyn.kernel.run_state import fold
from reyn.kernel.runtime_types import ReplayReport, RunResult, VerifyReport, standing
from reyn.kernel.stream import RunStream
from reyn.models import open_model
from reyn.skills import Library, load_skill, unpin
from reyn.skills.resolve import is_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from reyn.config import Config
    from reyn.journal import Event, Journal, RunRow
    from reyn.kernel.live import Listener
    from reyn.kernel.loading import Loaded
    from reyn.kernel.ports import Clock, Ids
    from reyn.kernel.run_state import RunState
    from reyn.kernel.tape import Tape
    from reyn.models import Model
    from reyn.skills import Skill

STATE = ".reyn"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class OSRuntime:
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
    ) -> None:
        self.root = root
        self.config = config
        self.library = Library(root)
        self._given_journal = journal
        self._model = model
        self._clock = clock or SystemClock()
        self._ids = ids or TimedIds()
        self._briefs: dict[tuple[str, str], Briefs] = {}
        self._driving: set[asyncio.Task[Any]] = set()

    @classmethod
    def open(
        cls,
        root: str | Path = ".",
        *,
        model: Model | str | None = None,
        journal: Journal | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        **settings: Any,
    ) -> Self:
        """The project at `root`; further keywords override keys of its configuration."""
        folder = Path(root).resolve()
        if not folder.is_dir():
            raise ProjectNotFound(f"no folder `{root}`")
        if isinstance(model, str):
            settings["model"], model = model, None
        config = load_config(folder, settings)
        return cls(folder, config, journal=journal, model=model, clock=clock, ids=ids)

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
    ) -> RunResult:
        """Start a run and drive it until it ends or stops. With a `run_id` that exists, continue that run."""
        name = self._ids.new() if run_id is None else run_id
        if not _RUN_ID.fullmatch(name):
            raise RunIdInvalid(f"`{name}` cannot name a run")
        if run_id is not None and self._is_recorded(name):
            with self.journal.claim(name):
                return await self._run_again(name, skill, input, listener)
        loaded = self.load(skill)
        settings = RunSettings.of(self.config)
        artifact = Blob.of(canonical(to_artifact(input, loaded, strict=settings.strict)))
        model = self._open_model(self.config.model)
        with self.journal.claim(name):
            if self.journal.find(name) is not None:  # another process was faster
                return await self._run_again(name, skill, input, listener)
            tape = new_tape(self.journal, name, loaded, settings, artifact, model=model.name, now=self._clock.now())
            return await self._drive(
                tape, LiveWorld(self.journal, self._commits, model, self._clock, listener=listener)
            )

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
        listener: Listener | None = None,
    ) -> RunResult:
        """Continue a run that was interrupted; with `retry`, one that failed; with raised limits, one that a cap
        stopped. Another `model` than before is recorded as such."""
        row, raised = self.find(run), raise_limits or {}
        with self.journal.claim(row.run_id):
            loaded = load_run(self.journal, row.run_id)
            if loaded.state.status in ENDED:
                if retry or raised:
                    raise RunNotResumable(f"run `{row.run_id}` is {loaded.state.status}; nothing moves it on")
                return self._to_result(loaded.state)
            check_raise(loaded.state, self._briefs_of(loaded.started).settings, raised)
            said = self.journal.drain(row.run_id, loaded.state.messages_taken)
            if not any(isinstance(message.said, Cancel) for message in said):
                check_resume(row.run_id, loaded.state, retry=retry, raised=raised)
            for limit, value in raised.items():
                self.journal.post(row.run_id, RaiseLimit(limit, value))
            return await self._continue(loaded, listener, retry=retry, model=model)

    def stream(self, skill: str, input: Any = None, *, run_id: str | None = None) -> RunStream:
        """Start a run and iterate over its events as they become durable; `.result` holds the result at the end."""
        return RunStream(lambda listener: self.run(skill, input, run_id=run_id, listener=listener))

    async def _run_again(self, run_id: str, skill: str, given: Any, listener: Listener | None) -> RunResult:
        """The run of a key: go on if it was interrupted, else say how it stands. Works from the run's own copy."""
        loaded = load_run(self.journal, run_id)
        briefs = self._briefs_of(loaded.started)
        artifact = Blob.of(canonical(to_artifact(given, briefs.skill, strict=briefs.settings.strict)))
        is_other = not is_path(skill) and skill != loaded.started.skill
        if is_other or loaded.started.input.hash != artifact.hash:
            raise RunKeyTaken(f"run `{run_id}` is one of skill `{loaded.started.skill}`, with another skill or input")
        if loaded.state.status != "running":
            return self._to_result(loaded.state)
        return await self._continue(loaded, listener)

    async def _continue(
        self, loaded: Loaded, listener: Listener | None, *, retry: bool = False, model: str | None = None
    ) -> RunResult:
        opened = self._open_model(model or loaded.state.model)
        resumption = Resumption(self._ids.new(), retry=retry)
        world = LiveWorld(self.journal, self._commits, opened, self._clock, resumption=resumption, listener=listener)
        return await self._drive(loaded.tape, world)

    async def _drive(self, tape: Tape, world: LiveWorld) -> RunResult:
        assert tape.state.started is not None
        briefs = self._briefs_of(tape.state.started, tape.content)
        task = asyncio.current_task()
        assert task is not None
        self._driving.add(task)
        try:
            async with self._commits.run_is_live():
                state = await Driver(tape, briefs, world).drive()
        finally:
            self._driving.discard(task)
        return self._to_result(state, (*unoffered_ops(briefs.skill), *world.warnings))

    # -- looking --------------------------------------------------------------------------------------

    def find(self, run: str) -> RunRow:
        """A run by its id, or by the beginning of it where only one fits."""
        row = self.journal.find(run)
        if row is not None:
            return row
        rows = self.journal.runs(run) if run else []
        if len(rows) == 1:
            return rows[0]
        raise RunNotFound(f"{len(rows)} runs begin with `{run}`" if rows else f"no run `{run}`")

    def runs(self) -> list[RunRow]:
        """Every run, newest first."""
        return self.journal.runs()

    def standing(self, row: RunRow) -> str:
        return standing(row, is_claimed=self.journal.is_claimed(row.run_id))

    def events(self, run: str, after: int = 0) -> Iterator[Event]:
        return self.journal.read(self.find(run).run_id, after)

    def state(self, run: str) -> RunState:
        """The fold of all that is recorded of a run."""
        state = fold(self.events(run))
        if state.started is None:
            raise ChainBroken(f"event 1 of run `{run}` is missing")
        return state

    def result(self, run: str) -> RunResult:
        """Where a run stands, as the result it would return now."""
        return self._to_result(self.state(run))

    async def replay(self, run: str) -> ReplayReport:
        """Derive a run again from its recorded inputs and compare every event."""
        return await Replayer(self.journal, self._briefs_of).replay(self.find(run).run_id)

    def verify(self, run: str) -> VerifyReport:
        """Prove that a run's events and contents are the ones that were written."""
        return verify(self.journal, self.find(run).run_id)

    def cancel(self, run: str, reason: str = "") -> None:
        """Ask a run to stop for good; whoever drives it, or resumes it next, does so before its next effect."""
        row = self.find(run)
        if row.status in ENDED:
            raise RunNotResumable(f"run `{row.run_id}` is {row.status} already", hint="There is nothing to cancel.")
        self.journal.post(row.run_id, Cancel(reason))

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
        brief = Briefs(loaded, settings).of(loaded.entry, settings.limits.max_phase_visits)
        return ContextFrame(brief.frame, artifact, Execution((loaded.entry,), 1, 1))

    def _open_model(self, name: str) -> Model:
        if self._model is not None:
            return self._model
        return open_model(name, root=self.root, journal=self.journal, names=self.config.models)

    def _briefs_of(self, started: kinds.RunStarted, content: Callable[[str], bytes] | None = None) -> Briefs:
        """From the run's own copies, never from the files of today."""
        key = (started.skill_hash, started.settings)
        if key not in self._briefs:
            content = content or self.journal.blob
            try:
                copies = content(started.skill_hash), content(started.settings)
            except BlobMissing as error:
                raise RunBlocked(f"the run's own copy of its skill or settings is gone: {error}") from error
            self._briefs[key] = Briefs(unpin(copies[0]), _to_settings(copies[1]))
        return self._briefs[key]

    def _to_result(self, state: RunState, warnings: tuple[str, ...] = ()) -> RunResult:
        assert state.started is not None
        assert state.status is not None
        artifact = None
        if state.status == "finished" and state.artifact is not None:
            kept = msgspec.json.decode(self.journal.blob(state.artifact.hash))
            artifact = {"type": kept["type"], "data": kept["data"]}
        return RunResult(state.started.run_id, state.status, state.reason, artifact, state.usage, state.path, warnings)

    async def aclose(self) -> None:
        """Interrupt what is still being driven, resumably, and let go of the journal."""
        driving = self._driving - {asyncio.current_task()}
        for task in driving:
            task.cancel()
        if driving:
            await asyncio.wait(driving)
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


def _to_settings(content: bytes) -> RunSettings:
    try:
        return msgspec.json.decode(content, type=RunSettings)
    except msgspec.MsgspecError as error:
        raise RunBlocked(f"the run's own copy of its settings cannot be read: {error}") from error
