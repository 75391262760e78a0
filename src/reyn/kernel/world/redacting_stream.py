"""The stream of a model's answer, without the secrets that the model repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.models import Delta

if TYPE_CHECKING:
    from reyn.kernel.world.watchers import OnDelta
    from reyn.models.roster import Roster


class RedactingStream:
    """Passes pieces of an answer to `on_delta` without secrets. An error in the callback ends the stream, not the call.

    Text that may be the beginning of a secret is delayed until more text arrives.
    """

    def __init__(self, on_delta: OnDelta, roster: Roster, run_id: str, call: str) -> None:
        self._on_delta: OnDelta | None = on_delta
        self._roster = roster
        self._run_id = run_id
        self._call = call
        self._pending = ""
        self._new: list[str] = []
        self._new_length = 0

    def __call__(self, text: Any) -> None:
        if not isinstance(text, str):
            return  # an adapter's bug must not fail the call
        self._new.append(text)
        self._new_length += len(text)
        if 8 * self._new_length >= len(
            self._pending
        ):  # scanning on every piece would be quadratic in a long pending text
            text, self._pending = self._roster.split(self._take())
            self._send(text)

    def finish(self) -> None:
        """Send the rest at the end of an attempt."""
        text, rest = self._roster.split(self._take())
        self._pending = ""
        self._send(text + rest)

    def _take(self) -> str:
        text = self._pending + "".join(self._new)
        self._new.clear()
        self._new_length = 0
        return text

    def _send(self, text: str) -> None:
        if text and self._on_delta is not None:
            try:
                self._on_delta(Delta(self._run_id, self._call, text))
            except Exception:  # noqa: BLE001 - the callback is the caller's code
                self._on_delta = None
