"""`AbortSignal`: asks for the abort of turns, from any thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class AbortSignal:
    """Aborts the turns that were started with it, those in progress and later ones. It cannot be taken back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._subscribers: list[Callable[[str], object]] = []

    def __repr__(self) -> str:
        return f"<AbortSignal {'aborted' if self.is_aborted else 'not aborted'}>"

    @property
    def is_aborted(self) -> bool:
        """Whether `abort` was called."""
        return self._reason is not None

    @property
    def reason(self) -> str:
        """The reason of the abort; empty without one."""
        return self._reason or ""

    def abort(self, reason: str = "") -> None:
        """Abort. Only the first call has an effect."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            subscribers = list(self._subscribers)
        for subscriber in subscribers:
            subscriber(reason)

    def subscribe(self, subscriber: Callable[[str], object]) -> Callable[[], None]:
        """Call a function with the reason at the abort, or now if it has happened; return a function to unsubscribe."""
        with self._lock:
            reason = self._reason
            self._subscribers.append(subscriber)
        if reason is not None:
            subscriber(reason)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers.remove(subscriber)

        return unsubscribe
