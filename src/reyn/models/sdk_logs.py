"""Keep secrets out of the debug logs of the SDKs and the HTTP libraries below them.

They log headers and bodies of responses, in which a server may repeat the key. Filters of a logger do not apply to its
children, so each logger of these packages gets one.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from reyn.secrets import Scrubber

_PACKAGES = (
    "openai",
    "anthropic",
    "google_genai",
    "LiteLLM",
    "httpx",
    "httpcore",
    "httpx2",
    "httpcore2",
    "h11",
    "h2",
    "hpack",
    "anyio",
)
_IMPORTED_LATER = [f"httpcore{major}.{part}" for major in ("", "2") for part in ("http11", "http2", "proxy", "socks")]
"""Loggers of modules that are imported during a call."""


class _ScrubbingFilter(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self.scrubbers: WeakSet[Scrubber] = WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a malformed record; logging reports it
            return True
        trace = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n") if record.exc_info else ""
        clean, clean_trace = self._scrub(text), self._scrub(trace)
        if clean != text:
            record.msg, record.args = clean, None
        if clean_trace != trace:
            record.exc_info, record.exc_text = None, clean_trace
        return True

    def _scrub(self, text: str) -> str:
        for scrubber in tuple(self.scrubbers):
            text = scrubber.scrub(text)
        return text


_FILTER = _ScrubbingFilter()


def scrub_logs(scrubber: Scrubber) -> None:
    """Scrub the logs of the SDK from now on, as long as the scrubber exists. Call it when the SDK is imported."""
    _FILTER.scrubbers.add(scrubber)
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _PACKAGES]
    for name in (*_PACKAGES, *_IMPORTED_LATER, *names):
        logging.getLogger(name).addFilter(_FILTER)  # adding it again has no effect
