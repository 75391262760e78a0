"""Run a program with the user's own rights: bounded in time and output, ended with everything it started, not isolated.

For `shell` and for unsafe python steps, which the operator has allowed. Its environment is not inherited either.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reyn.errors import SandboxUnavailable
from reyn.sandbox.supervision import supervise
from reyn.sandbox.system import search_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.sandbox.supervision import Stop
    from reyn.sandbox.values import Limits, Outcome

_REAPER = Path(__file__).with_name("reaper.py")
_KILL_SECONDS = 5.0


def run_unconfined(
    argv: tuple[str, ...],
    cwd: str,
    limits: Limits,
    *,
    env: dict[str, str] | None = None,
    stdin: bytes = b"",
    stop: Stop | None = None,
) -> Outcome:
    """Run a program until it ends or exceeds a limit. Only the limits of time and output apply.

    Raises:
        SandboxUnavailable: This is not Linux, where Reyn cannot find every process that the program started.
    """
    if platform.system() != "Linux":
        raise SandboxUnavailable(f"programs can be executed on Linux only, not on {platform.system()}")
    inherited = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME") if name in os.environ}
    environment = {"PATH": search_path(), "LANG": "C.UTF-8"} | inherited | (env or {})
    return supervise(_Reaped(argv, cwd, environment), stdin, limits, stop)


def reaped(argv: Sequence[str], control: int) -> list[str]:
    """Return the command that runs a program below a reaper: all of its descendants end when it ends.

    They also end when the other end of the descriptor `control` is closed, for example because this process was killed.
    """
    return [sys.executable, "-I", "-S", str(_REAPER), str(control), *argv]


class _Reaped:
    """A process below a reaper, which ends all of its descendants when the control pipe closes."""

    def __init__(self, argv: tuple[str, ...], cwd: str, env: dict[str, str]) -> None:
        control, self._control = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the operator has allowed it
                reaped(argv, control),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=env,
                cwd=cwd,
                pass_fds=(control,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._control)
            raise
        finally:
            os.close(control)
        streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        stdin, stdout, stderr = (os.dup(stream.fileno()) for stream in streams if stream is not None)
        self.streams = (stdin, stdout, stderr)
        for stream in streams:
            if stream is not None:
                stream.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def overuse(self, limits: Limits) -> str:
        return ""

    def kill(self) -> None:
        self._close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_SECONDS)
            return
        self._process.kill()

    def wait(self) -> int:
        code = self._process.wait()
        self._close()
        return 128 - code if code > 128 else code

    def _close(self) -> None:
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
