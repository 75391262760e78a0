"""The door: opens a project, starts, resumes, replays and verifies its runs. Wires the layers; holds no rule.

async with OSRuntime.open(".") as rt:
    result = await rt.run("hello", {"text": "..."})
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import Limits, RunSettings, load_config
from reyn.errors import (
    LimitUnknown,
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
from reyn.kernel.loading import load_tape, new_tape
from reyn.kernel.ports import SystemClock, TimedIds
from reyn.kernel.replayer import Replayer, verify
from reyn.kernel.run_orchestrator import RULES_VERSION, limit_of
from reyn.kernel.run_state import fold
from reyn.kernel.runtime_types import ReplayReport, RunResult, VerifyReport, standing
from reyn.kernel.stream import RunStream
from reyn.models import open_model
from reyn.skills import find_skill, load_skill, pin, unpin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from reyn.config import Config
    from reyn.journal import Event, Journal, RunRow
    from reyn.kernel.live import Listener
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
        loaded = self.load(skill)
        settings = RunSettings.of(self.config)
        artifact = Blob.of(canonical(to_artifact(input, loaded, strict=settings.strict)))
        with self.journal.claim(name):
            if self.journal.find(name) is not None:
                self._check_same(name, loaded, artifact)
                return await self._continue(name, listener)
            model = self._open_model(self.config.model)
            tape = new_tape(self.journal, name)
            copy, pinned = pin(loaded), Blob.of(canonical(settings))
            kind = msgspec.json.decode(artifact.content)["type"]
            tape.record(
                kinds.RunStarted(
                    run_id=name,
                    skill=loaded.name,
                    skill_hash=copy.hash,
                    input=kinds.ArtifactRef(kind, artifact.hash),
                    model=model.name,
                    settings=pinned.hash,
                    rules=RULES_VERSION,
                ),
                self._clock.now(),
                copy,
                pinned,
                artifact,
            )
            world = LiveWorld(self.journal, self._commits, model, self._clock, listener=listener)
            return await self._drive(tape, world)

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
        row = self.find(run)
        with self.journal.claim(row.run_id):
            state = self._movable(row.run_id, retry=retry, raised=raise_limits or {})
            for limit, value in (raise_limits or {}).items():
                self.journal.post(row.run_id, "raise_limit", {"limit": limit, "value": value})
            return await self._continue(row.run_id, listener, retry=retry) if state else self.result(row.run_id)

    def stream(self, skill: str, input: Any = None, *, run_id: str | None = None) -> RunStream:
        """Start a run and iterate over its events as they become durable; `.result` holds the result at the end."""
        stream = RunStream(lambda listener: self.run(skill, input, run_id=run_id, listener=listener))
        self._streams.add(stream)
        return stream

    async def _continue(self, run_id: str, listener: Listener | None, *, retry: bool = False) -> RunResult:
        tape = load_tape(self.journal, run_id)
        assert tape.state.started is not None
        if tape.upcoming is None and tape.state.status in ("finished", "aborted", "cancelled"):
            return self.result(run_id)
        resumption = Resumption(self._ids.new(), retry=retry)
        model = self._open_model(tape.state.started.model)
        world = LiveWorld(self.journal, self._commits, model, self._clock, resumption=resumption, listener=listener)
        return await self._drive(tape, world)

    async def _drive(self, tape: Tape, world: LiveWorld) -> RunResult:
        assert tape.state.started is not None
        async with self._commits.run_is_live():
            state = await Driver(tape, self._briefs_of(tape.state.started, tape.content), world).drive()
        return self._to_result(state)

    def _movable(self, run_id: str, *, retry: bool, raised: Mapping[str, int | None]) -> bool:
        """Whether there is anything to go on with; an error that names the way where another one is needed."""
        state = fold(self.journal.read(run_id))
        assert state.started is not None
        unknown = raised.keys() - {field.name for field in msgspec.structs.fields(Limits)}
        if unknown:
            raise LimitUnknown(f"no limit is called {', '.join(f'`{name}`' for name in sorted(unknown))}")
        settings = self._briefs_of(state.started).settings
        for name, value in raised.items():
            cap = limit_of(state, settings, name)
            if cap is None or (value is not None and value <= cap):
                raise LimitUnknown(f"`{name}` is {'not set' if cap is None else cap}; {value} does not raise it")
        if state.status == "failed" and not retry:
            raise RunNotResumable(
                f"run `{run_id}` failed: {state.reason}", hint=f"`reyn resume {run_id} --retry` tries again."
            )
        if state.status == "limited" and not raised:
            raise RunNotResumable(
                f"run `{run_id}` stopped at a limit: {state.reason}",
                hint=f"`reyn resume {run_id} --raise max_phase_visits=N` goes on with a larger cap.",
            )
        return state.status in ("running", "failed", "limited")

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
        self.journal.post(self.find(run).run_id, "cancel", {"reason": reason})

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

    def _check_same(self, run_id: str, skill: Skill, artifact: Blob) -> None:
        started = fold(self.journal.read(run_id)).started
        assert started is not None
        if (started.skill, started.input.hash) != (skill.name, artifact.hash):
            raise RunKeyTaken(f"run `{run_id}` is one of skill `{started.skill}` with another input")

    def _to_result(self, state: RunState) -> RunResult:
        assert state.started is not None
        assert state.status is not None
        artifact = None
        if state.status == "finished" and state.artifact is not None:
            kept = msgspec.json.decode(self.journal.blob(state.artifact.hash))
            artifact = {"type": kept["type"], "data": kept["data"]}
        return RunResult(state.started.run_id, state.status, state.reason, artifact, state.usage, state.path, ())

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
