"""The door: opens a project, starts, resumes, replays and verifies its runs. Wires the layers; holds no rule.

async with OSRuntime.open(".") as rt:
    result = await rt.run("hello", {"text": "..."})
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import RunSettings, load_config
from reyn.errors import (
    ProjectNotFound,
    RunBlocked,
    RunKeyTaken,
    RunNotFound,
    RunNotResumable,
)
from reyn.journal import Blob, canonical, kinds
from reyn.kernel.briefs import Briefs
from reyn.kernel.commits import SharedCommits
from reyn.kernel.driver import Driver
from reyn.kernel.inputs import check_supported, to_artifact
from reyn.kernel.live import LiveWorld, Resumption
from reyn.kernel.loading import load_run, new_tape
from reyn.kernel.ports import SystemClock, TimedIds
from reyn.kernel.replayer import Replayer, verify
from reyn.kernel.resuming import ENDED, check_raise, check_resume
from reyn.kernel.run_state import fold
from reyn.kernel.runtime_types import ReplayReport, RunResult, VerifyReport, standing
from reyn.kernel.stream import RunStream
from reyn.models import open_model
from reyn.skills import find_skill, load_skill, unpin

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
        journal: Journal,
        *,
        model: Model | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self.root = root
        self.config = config
        self.journal = journal
        self._model = model
        self._clock = clock or SystemClock()
        self._ids = ids or TimedIds()
        self._commits = SharedCommits(journal)
        self._briefs: dict[tuple[str, str], Briefs] = {}
        self._streams: set[RunStream] = set()

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
        if journal is None:
            from reyn.journal.sqlite import SqliteJournal

            journal = SqliteJournal(folder / STATE)
        return cls(folder, config, journal, model=model, clock=clock, ids=ids)

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
        name = run_id or self._ids.new()
        if not _RUN_ID.fullmatch(name):
            raise RunNotFound(f"`{name}` cannot name a run", hint="Use letters, digits, `.`, `_` and `-`.")
        with self.journal.claim(name):
            if self.journal.find(name) is not None:
                return await self._run_again(name, skill, input, listener)
            loaded = self.load(skill)
            settings = RunSettings.of(self.config)
            artifact = Blob.of(canonical(to_artifact(input, loaded, strict=settings.strict)))
            model = self._open_model(self.config.model)
            tape = new_tape(self.journal, name, loaded, settings, artifact, model=model.name, now=self._clock.now())
            return await self._drive(
                tape, LiveWorld(self.journal, self._commits, model, self._clock, listener=listener)
            )

    async def resume(
        self,
        run: str,
        *,
        retry: bool = False,
        raise_limits: Mapping[str, int | None] | None = None,
        listener: Listener | None = None,
    ) -> RunResult:
        """Continue a run that was interrupted; with `retry`, one that failed; with raised limits, one that a cap
        stopped."""
        row, raised = self.find(run), raise_limits or {}
        with self.journal.claim(row.run_id):
            loaded = load_run(self.journal, row.run_id)
            if loaded.state.status in ENDED:
                return self._to_result(loaded.state)
            check_raise(loaded.state, self._briefs_of(loaded.started).settings, raised)
            check_resume(row.run_id, loaded.state, retry=retry, raised=raised)
            for limit, value in raised.items():
                self.journal.post(row.run_id, "raise_limit", {"limit": limit, "value": value})
            return await self._continue(loaded, listener, retry=retry)

    def stream(self, skill: str, input: Any = None, *, run_id: str | None = None) -> RunStream:
        """Start a run and iterate over its events as they become durable; `.result` holds the result at the end."""
        stream = RunStream(lambda listener: self.run(skill, input, run_id=run_id, listener=listener))
        self._streams.add(stream)
        return stream

    async def _run_again(self, run_id: str, skill: str, given: Any, listener: Listener | None) -> RunResult:
        """The run of a key: go on if it was interrupted, else say how it stands. Works from the run's own copy."""
        loaded = load_run(self.journal, run_id)
        briefs = self._briefs_of(loaded.started)
        artifact = Blob.of(canonical(to_artifact(given, briefs.skill, strict=briefs.settings.strict)))
        if loaded.started.skill not in (skill, Path(skill).name) or loaded.started.input.hash != artifact.hash:
            raise RunKeyTaken(f"run `{run_id}` is one of skill `{loaded.started.skill}`, with another skill or input")
        if loaded.state.status != "running":
            return self._to_result(loaded.state)
        return await self._continue(loaded, listener)

    async def _continue(self, loaded: Loaded, listener: Listener | None, *, retry: bool = False) -> RunResult:
        model = self._open_model(loaded.started.model)
        resumption = Resumption(self._ids.new(), retry=retry)
        world = LiveWorld(self.journal, self._commits, model, self._clock, resumption=resumption, listener=listener)
        return await self._drive(loaded.tape, world)

    async def _drive(self, tape: Tape, world: LiveWorld) -> RunResult:
        assert tape.state.started is not None
        async with self._commits.run_is_live():
            state = await Driver(tape, self._briefs_of(tape.state.started, tape.content), world).drive()
        return self._to_result(state, tuple(world.warnings))

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
        return fold(self.events(run))

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
        self.journal.post(row.run_id, "cancel", {"reason": reason})

    # -- wiring ---------------------------------------------------------------------------------------

    def load(self, skill: str) -> Skill:
        """A skill by name or path, checked."""
        loaded = load_skill(find_skill(self.root, skill), self.root / "reyn" / "shared")
        check_supported(loaded)
        return loaded

    def _open_model(self, name: str) -> Model:
        if self._model is not None:
            return self._model
        return open_model(name, root=self.root, journal=self.journal, names=self.config.models)

    def _briefs_of(self, started: kinds.RunStarted, content: Callable[[str], bytes] | None = None) -> Briefs:
        """From the run's own copies, never from the files of today."""
        key = (started.skill_hash, started.settings)
        if key not in self._briefs:
            content = content or self.journal.blob
            self._briefs[key] = Briefs(unpin(content(started.skill_hash)), _to_settings(content(started.settings)))
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
        for stream in list(self._streams):
            await stream.aclose()
        self._streams.clear()
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
