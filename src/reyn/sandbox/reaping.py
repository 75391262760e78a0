"""Run programs with the user's own rights, and end everything that they started.

`run_unconfined` is for `shell` and for unsafe python steps, which the operator has allowed: bounded in time and output,
ended with everything it started, not isolated.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from reyn.errors import SandboxUnavailable
from reyn.sandbox.process import search_path
from reyn.sandbox.supervision import Outcome, ProgramLimits, Running, StopSignal, start_piped, supervise

_REAPER = Path(__file__).with_name("reaper.py")
_KILL_SECONDS = 5.0


def run_unconfined(
    argv: tuple[str, ...],
    cwd: str,
    limits: ProgramLimits,
    *,
    env: dict[str, str] | None = None,
    stdin: bytes = b"",
    stop: StopSignal | None = None,
) -> Outcome:
    """Run a program until it ends or exceeds a limit. Only the limits of time and output apply.

    Raises:
        SandboxUnavailable: This is not Linux, where Reyn cannot find every process that the program started.
    """
    if platform.system() != "Linux":
        raise SandboxUnavailable(f"programs can be executed on Linux only, not on {platform.system()}")
    inherited = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME") if name in os.environ}
    environment = {"PATH": search_path(), "LANG": "C.UTF-8"} | inherited | (env or {})
    return supervise(Reaped(argv, cwd, environment), stdin, limits, stop)


def reaped(argv: Sequence[str], control: int) -> list[str]:
    """Return the command that runs a program below a reaper: all of its descendants end when it ends.

    They also end when the other end of the descriptor `control` is closed, for example because this process was killed.
    """
    return [sys.executable, "-I", "-S", str(_REAPER), str(control), *argv]


@contextmanager
def control_pipe() -> Iterator[tuple[int, int]]:
    """Yield the descriptor for a reaper, and the one that ends everything below it when it is closed.

    The second one stays open, unless no process could be started.
    """
    control, held = os.pipe()
    try:
        yield control, held
    except BaseException:
        os.close(held)
        raise
    finally:
        os.close(control)


class Reaped(Running):
    """A process below a reaper, which ends all of its descendants when the control pipe closes."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        env: dict[str, str],
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        with control_pipe() as (control, self._control):
            process = start_piped(reaped(argv, control), env=env, cwd=cwd, pass_fds=(control, *pass_fds))
        super().__init__(process)

    def kill(self) -> None:
        self._close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_KILL_SECONDS)
            return
        super().kill()

    def wait(self) -> int:
        code = super().wait()
        self._close()
        return code

    def _close(self) -> None:
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
