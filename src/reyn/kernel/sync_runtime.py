"""The runtime for code that does not await: the same calls, each driven to its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from reyn.kernel.os_runtime import OSRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from reyn.journal import Event, RunRow
    from reyn.kernel.comparing import DiffReport
    from reyn.kernel.live import Listener
    from reyn.kernel.runtime_types import ReplayReport, RunResult, VerifyReport
    from reyn.kernel.undoing import UndoReport


class SyncRuntime:
    """`with SyncRuntime.open(".") as rt: result = rt.run("hello", {...})`."""

    def __init__(self, runtime: OSRuntime) -> None:
        self.runtime = runtime
        self._runner = asyncio.Runner()

    @classmethod
    def open(cls, root: str | Path = ".", **options: Any) -> Self:
        return cls(OSRuntime.open(root, **options))

    def run(
        self,
        skill: str,
        input: Any = None,
        *,
        run_id: str | None = None,
        listener: Listener | None = None,
    ) -> RunResult:
        return self._runner.run(self.runtime.run(skill, input, run_id=run_id, listener=listener))

    def resume(
        self,
        run: str,
        *,
        retry: bool = False,
        raise_limits: Mapping[str, int | None] | None = None,
        model: str | None = None,
        upgrade: bool = False,
        listener: Listener | None = None,
    ) -> RunResult:
        return self._runner.run(
            self.runtime.resume(
                run, retry=retry, raise_limits=raise_limits, model=model, upgrade=upgrade, listener=listener
            )
        )

    def fork(self, run: str, **changes: Any) -> RunResult:
        """`at`, `model`, `input`, `skill`, `run_id`, `listener`, as the asynchronous one takes them."""
        return self._runner.run(self.runtime.fork(run, **changes))

    def rerun(self, run: str, **changes: Any) -> RunResult:
        """`model`, `upgrade`, `run_id`, `listener`, as the asynchronous one takes them."""
        return self._runner.run(self.runtime.rerun(run, **changes))

    def answer(self, run: str, wait: str, value: Any) -> str:
        return self.runtime.answer(run, wait, value)

    def cancel(self, run: str, reason: str = "") -> None:
        self.runtime.cancel(run, reason)

    def undo(self, run: str, *, dry_run: bool = False) -> UndoReport:
        return self.runtime.undo(run, dry_run=dry_run)

    def diff(self, a: str, b: str) -> DiffReport:
        return self.runtime.diff(a, b)

    def replay(self, run: str) -> ReplayReport:
        return self._runner.run(self.runtime.replay(run))

    def verify(self, run: str) -> VerifyReport:
        return self.runtime.verify(run)

    def events(self, run: str, after: int = 0) -> Iterator[Event]:
        return self.runtime.events(run, after)

    def runs(self) -> list[RunRow]:
        return self.runtime.runs()

    def result(self, run: str) -> RunResult:
        return self.runtime.result(run)

    def close(self) -> None:
        self._runner.run(self.runtime.aclose())
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
