"""Handle SIGINT (Ctrl-C) from the start to the end of the process.

`Interrupts` handles it while a run is executed: the first stops the run, which can be resumed; the second cancels it.
`ExitGuard` handles it during the rest of the process. No SIGINT ends in a traceback or kills the
process: the exit code is 130 or the command's own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType

EXIT_INTERRUPTED = 130
_GRACE_SECONDS = 1.5
"""How long a second Ctrl-C counts after the first one has stopped the run."""


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Exit on SIGTERM with cleanup, so that the pip subprocess ends, too."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class ExitGuard:
    """The SIGINT handler of the process.

    While a command works, the first SIGINT raises `KeyboardInterrupt`, so that the command can clean up. Every further
    one, and one before or after the command, exits at once.
    """

    def __init__(self) -> None:
        self._code = EXIT_INTERRUPTED
        self._raises = False

    def install(self) -> None:
        """Replace Python's own handler. A process that was started with SIGINT ignored keeps ignoring it."""
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        import atexit

        signal.signal(signal.SIGINT, self._handle)
        sys.unraisablehook = self._exit_if_swallowed
        atexit.register(_ignore_sigint)

    def run(self, command: Callable[[], int]) -> int:
        """Run the command and return its exit code, or 130 if SIGINT ended it."""
        try:
            self._raises = True
            self._code = command()
            self._raises = False
        except KeyboardInterrupt:  # raised once; from then on SIGINT exits
            pass
        return self._code

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._raises:
            self._exit()
        self._raises = False
        raise KeyboardInterrupt

    def _exit_if_swallowed(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Exit if `KeyboardInterrupt` was raised where nothing can catch it: in a finalizer or a weakref callback."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._exit()
        sys.__unraisablehook__(unraisable)

    def _exit(self) -> NoReturn:
        os._exit(self._code)


def _ignore_sigint() -> None:
    """Ignore SIGINT while the interpreter is torn down, when it would restore the default action: to kill the process.

    SIGINT is blocked first: one that arrived between the check for pending signals and the change of the handler would
    be reported as `OSError: Signal 2 ignored due to race condition`.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Interrupts:
    """Handle SIGINT while a run is executed, and pass other signals to the handler that was installed before.

    Args:
        stop: Stops the run; false if none is being executed.
    """

    def __init__(self, stop: Callable[[], bool]) -> None:
        self._stop = stop
        self._count = 0
        self._has_stopped = False
        self._before: Any = None

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGINT)
        if callable(before) and threading.current_thread() is threading.main_thread():
            self._before = before
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Stop the run on the first SIGINT, count the second, stop the cleanup on the third, exit on the fourth."""
        self._count += 1
        if self._has_stopped or self._count == 2:
            return
        if not self._stop() or self._count > 3:
            self._before(number, frame)

    def is_twice(self) -> bool:
        """Return whether a second Ctrl-C came, or comes within a moment. Call this when the run has stopped."""
        self._has_stopped = True
        deadline = time.monotonic() + _GRACE_SECONDS
        while self._count < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        return self._count >= 2
