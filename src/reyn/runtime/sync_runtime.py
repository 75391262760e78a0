"""The runtime for code that does not await: the same calls, each driven to its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from reyn.runs.next_action import command_for
from reyn.runs.questions import find_question, open_question
from reyn.runtime.os_runtime import OSRuntime

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from reyn.journal import Event, RunRow
    from reyn.kernel.live import Listener, OnDelta
    from reyn.kernel.runtime_types import ReplayReport, RunResult, VerifyReport
    from reyn.runs.archive import ImportReport
    from reyn.runs.diff import DiffReport
    from reyn.runs.questions import Question
    from reyn.runs.undo import UndoReport

R = TypeVar("R")


class SyncRuntime:
    """`with SyncRuntime.open(".") as rt: result = rt.run("hello", {...})`."""

    def __init__(self, runtime: OSRuntime) -> None:
        self.runtime = runtime
        self._runner = asyncio.Runner()
        self._task: asyncio.Task[Any] | None = None

    @classmethod
    def open(cls, root: str | Path = ".", **options: Any) -> Self:
        return cls(OSRuntime.open(root, **options))

    # -- what drives a run ----------------------------------------------------------------------------

    def run(
        self,
        skill: str,
        input: Any = None,
        *,
        run_id: str | None = None,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        return self._drive(self.runtime.run(skill, input, run_id=run_id, listener=listener, on_delta=on_delta))

    def resume(
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
        return self._drive(
            self.runtime.resume(
                run,
                retry=retry,
                raise_limits=raise_limits,
                model=model,
                upgrade=upgrade,
                listener=listener,
                on_delta=on_delta,
            )
        )

    def fork(self, run: str, **changes: Any) -> RunResult:
        """`at`, `model`, `input`, `skill`, `run_id`, `listener`, as the asynchronous one takes them."""
        return self._drive(self.runtime.fork(run, **changes))

    def rerun(self, run: str, **changes: Any) -> RunResult:
        """`model`, `upgrade`, `run_id`, `listener`, as the asynchronous one takes them."""
        return self._drive(self.runtime.rerun(run, **changes))

    def interrupt(self) -> bool:
        """Stop what is being driven, resumably: the call then raises `asyncio.CancelledError`. For signal handlers and
        other threads; false if nothing is being driven."""
        task = self._task
        if task is None or task.done():
            return False
        task.get_loop().call_soon_threadsafe(task.cancel)
        return True

    def _drive(self, call: Coroutine[Any, Any, R]) -> R:
        try:
            return self._runner.run(self._noted(call))
        finally:
            self._task = None

    async def _noted(self, call: Coroutine[Any, Any, R]) -> R:
        self._task = asyncio.current_task()
        return await call

    # -- what is said to a run ------------------------------------------------------------------------

    def answer(self, run: str, wait: str, value: Any) -> str:
        return self.runtime.answer(run, wait, value)

    def cancel(self, run: str, reason: str = "") -> None:
        self.runtime.cancel(run, reason)

    def undo(self, run: str, *, dry_run: bool = False) -> UndoReport:
        return self.runtime.undo(run, dry_run=dry_run)

    # -- what is known of runs ------------------------------------------------------------------------

    def find(self, run: str) -> RunRow:
        return self.runtime.find(run)

    def runs(self) -> list[RunRow]:
        return self.runtime.runs()

    def standing(self, row: RunRow) -> str:
        return self.runtime.standing(row)

    def command_for(self, row: RunRow) -> str:
        """The command line that moves a run on; empty where nothing does, or whoever drives it will."""
        return command_for(self.runtime.journal, row)

    def open_question(self, row: RunRow) -> Question | None:
        """The question that is open at a run or below it."""
        return open_question(self.runtime.journal, row)

    def find_question(self, row: RunRow, wait: str) -> Question:
        """The open question of that name; an error if it is not open."""
        return find_question(self.runtime.journal, row, wait)

    def result(self, run: str) -> RunResult:
        return self.runtime.result(run)

    def events(self, run: str, after: int = 0) -> Iterator[Event]:
        return self.runtime.events(run, after)

    def touched(self, run: str) -> dict[str, str]:
        return self.runtime.touched(run)

    def frame_at(self, run: str, seq: int | None = None) -> list[tuple[str, str]]:
        return self.runtime.frame_at(run, seq)

    def replay(self, run: str) -> ReplayReport:
        return self._runner.run(self.runtime.replay(run))

    def verify(self, run: str) -> VerifyReport:
        return self.runtime.verify(run)

    def diff(self, a: str, b: str) -> DiffReport:
        return self.runtime.diff(a, b)

    def export(self, run: str) -> Iterator[bytes]:
        return self.runtime.export(run)

    def import_(self, lines: Iterable[bytes]) -> ImportReport:
        return self.runtime.import_(lines)

    def close(self) -> None:
        self._runner.run(self.runtime.aclose())
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
