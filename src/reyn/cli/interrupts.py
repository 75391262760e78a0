"""Ctrl-C while a run is driven: once, it stops and can be resumed; twice, it is cancelled for good."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, Self

_PATIENCE = 1.5
"""Seconds after the first Ctrl-C in which a second one counts."""


class Interrupts:
    """`stop` ends what is being driven, and tells whether anything is. Where SIGINT is ignored, it stays so."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self._stop = stop
        self._count = 0
        self._since = 0.0
        self._is_over = False
        self._before: Any = None

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        """The first stops the run, which takes a moment; the second is remembered; a third stops the stopping, too; if
        even that is held up, whoever goes on does not wait for it."""
        self._count += 1
        self._since = self._since or time.monotonic()
        if self._is_over or self._count == 2:
            return
        if not self._stop() or self._count > 3:
            raise KeyboardInterrupt

    def is_twice(self) -> bool:
        """Once the run has stopped: whether Ctrl-C was pressed again meanwhile, or is within a moment."""
        self._is_over = True
        deadline = self._since + _PATIENCE
        while self._count < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        return self._count >= 2
