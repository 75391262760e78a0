"""The key of a model: resolve it when a request needs it, check it without reading it, and keep it out of the logs.

SDKs and the HTTP libraries below them log headers and bodies of responses, in which a server may repeat the key.
Filters of a logger do not apply to its children, so each logger of these packages gets one.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from weakref import WeakSet

from reyn.config.models import ADAPTERS
from reyn.errors import ConfigError, KeyRejected
from reyn.secrets import Scrubber, Secrets, origin_of

NO_KEY = "no-key-is-set"
"""Sent to servers without a configured key, because the SDKs require one."""


class ModelKey:
    """The key of one model.

    Args:
        name: The name that the journal records.
        handle: The handle of the secret, if the settings have one.
        secrets: Opens the secrets.
    """

    def __init__(self, name: str, handle: str | None, secrets: Callable[[], Secrets]) -> None:
        self._name = name
        self.handle = handle
        self._secrets = secrets
        self._scrubber: Scrubber | None = None

    def resolve(self, url: str) -> str | None:
        """Return the key for a server, or `None` if the settings have none.

        Raises:
            KeyRejected: The secret does not exist, or may not be sent to this server.
        """
        if not self.handle:
            return None
        try:
            secrets = self._secrets()
            key = secrets.resolve_for(self.handle, url)
        except ConfigError as error:
            raise self._rejected(error) from error
        self._scrubber = secrets.scrubber
        return key

    def check(self, url: str) -> None:
        """Check, without reading it and without a connection, that there is a key and that the server may have it.

        Raises:
            KeyRejected: The key cannot be used.
        """
        if not self.handle:
            return
        try:
            self._secrets().check_present(self.handle)
            self._secrets().check_origin(self.handle, origin_of(url))
        except ConfigError as error:
            raise self._rejected(error) from error

    def _rejected(self, error: ConfigError) -> KeyRejected:
        return KeyRejected(f"no API key for model `{self._name}`: {error.message}", hint=error.hint)

    def missing(self, adapter: str, base_url: str | None) -> KeyRejected:
        """Return the error for a model of a server that requires a key, and has none."""
        return KeyRejected(f"no API key for model `{self._name}`", hint=self._missing_hint(adapter, base_url))

    def _missing_hint(self, adapter: str, base_url: str | None) -> str:
        # A model that was named directly has no settings yet.
        is_direct = self._name.partition(":")[0] == adapter
        place = f"`models.{self._name}`" if not is_direct else f"an entry with `model: {self._name}` under `models`"
        variable = ADAPTERS[adapter].variable
        if variable and self._has_variable(variable):
            condition = "" if base_url is None else "if this server may receive it, "
            return f"`{variable}` is set: {condition}add `key: env://{variable}` to {place} in reyn.yaml."
        name = variable if variable and base_url is None else "NAME"
        return (
            f"Add `key: secret://{name}` (a stored secret) or `key: env://{name}` (an environment variable) to "
            f"{place} in reyn.yaml."
        )

    def _has_variable(self, variable: str) -> bool:
        try:
            return self._secrets().has_variable(variable)
        except ConfigError:  # the secret stores cannot be opened
            return False

    def rejected_hint(self, adapter: str, base_url: str | None) -> str:
        """Return what to do about a key that a server rejected."""
        if not self.handle:
            return self._missing_hint(adapter, base_url)
        if self.handle.startswith("env://"):
            return f"Set `{self.handle.removeprefix('env://')}` to a valid key, then resume the run."
        return f"Store a valid key as the secret `{self.handle.removeprefix('secret://')}`, then resume the run."

    def scrub(self, text: str) -> str:
        """Replace the key in a text. Before it is resolved, no key is known."""
        return text if self._scrubber is None else self._scrubber.scrub(text)

    def scrub_logs(self) -> None:
        """Scrub the logs of the SDK from now on. Call it when the SDK has imported the HTTP libraries."""
        if self._scrubber is None:
            return
        _FILTER.scrubbers.add(self._scrubber)
        names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _PACKAGES]
        for name in (*_PACKAGES, *_IMPORTED_LATER, *names):
            logging.getLogger(name).addFilter(_FILTER)  # adding it again has no effect


_PACKAGES = (
    "openai",
    "anthropic",
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
