"""Base class of the adapters for model servers: client, key, request format, and translation of errors.

An adapter subclasses `RemoteModel` and adds the request and the reply of its API. Requests go only to the configured
URL. Retries belong to the kernel; rate limits and circuit breakers belong to `endpoints`.
"""

from __future__ import annotations

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

from reyn.config.models import ADAPTERS
from reyn.errors import (
    EffortRejected,
    KeyRejected,
    ModelError,
    ModelNotInstalled,
    ModelTimeout,
    ModelUnavailable,
    PromptTooLong,
    RateLimited,
    RequestRejected,
    ResponseIncomplete,
    SchemaRejected,
)
from reyn.models.decoding import Inexpressible, Subset, decoding_schema, to_subset
from reyn.models.keys import NO_KEY, ModelKey
from reyn.models.protocol import PLAIN_TEXT, ModelAnswer, ModelRequest, OutputMode

if TYPE_CHECKING:
    from reyn.config import ModelSettings
    from reyn.config.models import Effort
    from reyn.models.streaming import StreamedReply
    from reyn.secrets import Secrets

MAX_ANSWER_LENGTH = 2_000_000
"""Characters after which reading stops. The contract rejects far shorter answers."""
CONNECT_SECONDS = 10
_MAX_MESSAGE_LENGTH = 500


class RequestFormat(NamedTuple):
    """The form of a request. A call keeps its own copy, because concurrent calls may change the model's.

    Attributes:
        mode: The output mode.
        has_tools: Whether the request offers tools.
        is_plain_text: Whether the answer is plain text.
        is_one_object: Whether the schema avoids `anyOf` at its root.
        limit_field: The field that limits the length of the answer, where servers disagree about it.
        has_effort_levels: Whether an effort in words is sent as words; otherwise, as a number of tokens.
        effort: How much the model thinks, in this request.
    """

    mode: OutputMode
    has_tools: bool = False
    is_plain_text: bool = False
    is_one_object: bool = False
    limit_field: str = "max_tokens"
    has_effort_levels: bool = True
    effort: Effort | None = None

    @property
    def thinks(self) -> bool:
        """Whether the request asks the model to think."""
        return self.effort not in (None, "none")

    @property
    def key(self) -> tuple[bool, bool]:
        """The kind of request that has this format."""
        return self.has_tools, self.is_plain_text


class RemoteModel(ABC):
    """A model behind a server. Subclasses set `adapter` and implement the abstract methods.

    With `is_listed`, the SDK is not imported, and the model can be described but not called.
    """

    adapter: ClassVar[str]
    takes_time = True
    _truncated: ClassVar[frozenset[str]] = frozenset()
    """The reasons to stop, in the words of the API, of an answer that is not complete."""
    _subset: ClassVar[Subset | None] = None
    """What the provider supports of JSON Schema; `None` if it rejects nothing."""
    _status_of_type: ClassVar[Mapping[str, int]] = {}
    """The status of the types of errors that are reported inside a stream."""

    def __init__(
        self,
        name: str,
        model: str,
        settings: ModelSettings,
        secrets: Callable[[], Secrets],
        *,
        is_listed: bool = False,
    ) -> None:
        self._sdk: Any = None
        if is_listed:
            self._check_installed()
        else:
            self._sdk = self._load_sdk()  # takes a second, which must not count against the timeout of a call
        self.name = name
        self._model = model
        self._settings = settings
        self._model_key = ModelKey(name, settings.key, secrets)
        self._modes: tuple[OutputMode, ...] = ADAPTERS[self.adapter].modes  # type: ignore[assignment]  # the table has the names of modes as `str`
        mode: OutputMode = self._modes[0] if settings.mode == "auto" else settings.mode
        # Some servers cannot constrain the output of a request with tools, so its format is found out separately.
        self._formats = {
            (has_tools, is_plain): self._first_format(RequestFormat("free" if is_plain else mode, has_tools, is_plain))
            for has_tools in (False, True)
            for is_plain in (False, True)
        }
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_key_rejected = False

    # -- the API, implemented by subclasses -----------------------------------------------------------

    @abstractmethod
    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Send one request and read the streamed answer to its end."""

    @classmethod
    @abstractmethod
    def import_sdk(cls) -> Any:
        """Import and return the SDK."""

    @abstractmethod
    def _new_client(self) -> Any:
        """Return a client for the running event loop."""

    @abstractmethod
    def _replace_key(self, client: Any, key: str) -> None:
        """Let a client use another key."""

    @abstractmethod
    async def _close_client(self, client: Any) -> None:
        """Close the connections of a client."""

    def _first_format(self, request_format: RequestFormat) -> RequestFormat:
        """Return the format of the first request of a kind."""
        return request_format

    def _other_format(self, message: str, request_format: RequestFormat) -> tuple[str, dict[str, Any]] | None:
        """Return another format, but no lower mode, to try after a rejected request: its name, and what changes."""
        is_changeable = request_format.mode == "json_schema" and not request_format.is_one_object
        if is_changeable and _is_about_format(message) and is_about("root", message):
            return "json_schema, one object", {"is_one_object": True}
        return None

    # -- requests -------------------------------------------------------------------------------------

    def _format_of(self, request: ModelRequest) -> tuple[RequestFormat, dict[str, Any] | None]:
        """Return the format of a request, and the schema to which it constrains the answer, if it does.

        A contract that the provider cannot express is asked for in the next lower mode.
        """
        effort = self._settings.effort if request.effort is None else request.effort
        self._check_effort(effort)
        request_format = self._formats[bool(request.tools), request.contract == PLAIN_TEXT]._replace(effort=effort)
        if request_format.mode != "json_schema":
            return request_format, None
        try:
            schema = decoding_schema(request.contract, is_one_object=request_format.is_one_object)
            return request_format, schema if self._subset is None else to_subset(schema, self._subset)
        except Inexpressible:
            return request_format._replace(mode=self._modes[1]), None

    def _check_effort(self, effort: Effort | None) -> None:  # noqa: B027 - most APIs have a setting for all of them
        """Check that the API has a setting for an effort.

        Raises:
            EffortRejected: It has none.
        """

    def _answer(self, reply: StreamedReply, request_format: RequestFormat, kind: str) -> ModelAnswer:
        """Return an answer that was read to its end.

        Args:
            reply: What has arrived.
            request_format: The format of the request.
            kind: The content type of the response.

        Raises:
            ResponseIncomplete: If the stream ended before the answer did, or calls tools that were not offered.
        """
        is_endless = reply.length > MAX_ANSWER_LENGTH
        if not reply.stop and not is_endless:
            what = "an incomplete answer" if reply.length else f"no answer (content type: {kind})"
            raise ResponseIncomplete(f"model `{self.name}` sent {what}")
        if reply.has_unasked_calls:
            raise ResponseIncomplete(f"model `{self.name}` sent tool calls, but the request offers no tools")
        return reply.answer(self.adapter, request_format.mode, is_truncated=is_endless or reply.stop in self._truncated)

    def _load_sdk(self) -> Any:
        try:
            return self.import_sdk()
        except ImportError as error:
            raise self._not_installed() from error

    def _check_installed(self) -> None:
        """Check that the package of the SDK is installed, without importing it."""
        try:
            version(ADAPTERS[self.adapter].package)
        except PackageNotFoundError as error:
            raise self._not_installed() from error

    def _not_installed(self) -> ModelNotInstalled:
        message = f"`{self.adapter}` models need the extra `{self.adapter}`"
        return ModelNotInstalled(message, hint=f"pip install 'reyn[{self.adapter}]'")

    def _connect(self) -> Any:
        """Return the client of the running event loop: connections cannot move between loops."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop = loop
            self._client = self._new_client()
            self._model_key.scrub_logs()
        elif self._is_key_rejected:
            self._replace_key(self._client, self._key())  # the operator may have replaced it
        self._is_key_rejected = False
        return self._client

    @property
    def _base_url(self) -> str:
        return self._settings.base_url or ADAPTERS[self.adapter].url

    @property
    def _trusts_environment(self) -> bool:
        """Whether proxies of the environment apply. They do not apply to servers on this machine."""
        host = urlsplit(self._base_url).hostname or ""
        return not (host in ("localhost", "::1") or host.startswith("127."))

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await self._close_client(client)

    # -- the key --------------------------------------------------------------------------------------

    @property
    def _needs_key(self) -> bool:
        """Whether the server is known to require a key."""
        return self._settings.base_url is None

    def _key(self) -> str:
        if not self._model_key.handle and self._needs_key:
            raise self._model_key.missing(self.adapter, self._settings.base_url)
        key = self._model_key.resolve(self._base_url) or NO_KEY
        if not (key.isascii() and key.isprintable() and " " not in key):
            message = f"the API key of model `{self.name}` contains whitespace or non-ASCII characters"
            raise KeyRejected(message, hint=f"Store it again without them, and check `{self._model_key.handle}`.")
        return key

    def scrub(self, text: str) -> str:
        """Replace the key in a text. Before the first call, no key is known."""
        return self._model_key.scrub(text)

    def _shorten(self, text: str) -> str:
        """Scrub, then truncate: the scrubber cannot recognize half a key."""
        return " ".join(self.scrub(text).split())[:_MAX_MESSAGE_LENGTH]

    # -- errors ---------------------------------------------------------------------------------------

    def timeout_error(self) -> ModelTimeout:
        """Return the error for an answer that took too long."""
        return ModelTimeout(f"model `{self.name}` did not answer within {self._settings.timeout_seconds} seconds")

    def _connection_error(self, error: BaseException) -> ModelUnavailable:
        details = f"{type(error).__name__}: {self._shorten(str(error))}"
        return ModelUnavailable(f"cannot connect to model `{self.name}` at {self._base_url}: {details}")

    def _stream_error(self, error: BaseException) -> ModelError:
        """Translate an exception that interrupted an answer."""
        kind = type(error).__name__
        if "Timeout" in kind:
            return self.timeout_error()
        message = f"the answer of model `{self.name}` was interrupted: {kind}: {self._shorten(str(error))}"
        return ResponseIncomplete(message)

    def _chunk_error(self, error: Any, request_format: RequestFormat) -> ModelError:
        """Translate an error that a server reports inside a response with status 200."""
        fields = error if isinstance(error, dict) else {"message": error}
        message = self._shorten(str(fields.get("message", error)))
        code = fields.get("code", self._status_of_type.get(str(fields.get("type"))))
        if isinstance(code, int) and 400 <= code < 600:
            return self._status_error(code, message, {}, request_format)
        return ResponseIncomplete(f"model `{self.name}` reported an error instead of an answer: {message}")

    def _withheld(self, reason: str) -> RequestRejected:
        """Return the error for an answer that the provider filtered out, or that the model refused to give."""
        hint = "Check the prompt of the phase, or use another model."
        return RequestRejected(f"model `{self.name}` withheld its answer: {self._shorten(reason)}", hint=hint)

    def _status_error(
        self, status: int, message: str, headers: Mapping[str, str], request_format: RequestFormat, target: str = ""
    ) -> ModelError:
        """Translate a response with an error status.

        Args:
            status: The HTTP status.
            message: The error message, scrubbed and shortened.
            headers: The headers of the response.
            request_format: The format of the request.
            target: Method and URL of the request.
        """
        text = f"model `{self.name}` returned HTTP {status}: {message}"
        if status in (401, 403):
            self._is_key_rejected = True
            return KeyRejected(text, hint=self._model_key.rejected_hint(self.adapter, self._settings.base_url))
        if status in (408, 409, 425, 429) or status >= 500:
            retry_after = self._retry_after(headers)
            text += "" if retry_after is None else f" (retry after {retry_after:.0f} seconds)"
            transient = RateLimited(text) if status == 429 else ModelUnavailable(text)
            transient.retry_after = retry_after
            return transient
        if status < 400:
            location = self.scrub(headers.get("location", "another URL"))
            message = f"model `{self.name}` returned HTTP {status}, a redirect to {location}"
            return RequestRejected(message, hint="Set the model's `base_url` to the final URL.")
        if status == 404:
            hint = f"Check the model's name and its `base_url`{ADAPTERS[self.adapter].url_hint}."
            return RequestRejected(f"{text} ({target})" if target else text, hint=hint)
        if status in (400, 413, 422):
            if status == 413 or is_about("length", message):
                return PromptTooLong(text)
            if found := self._other_format(message, request_format):
                return self._change_format(text, request_format, found[0], **found[1])
            if request_format.effort is not None and is_about("effort", message):
                return self._effort_rejected(text, request_format)
            if request_format.mode != "free" and _is_about_format(message):
                return self._downgrade(text, request_format)
        return RequestRejected(text)

    def _effort_rejected(self, text: str, request_format: RequestFormat) -> EffortRejected:
        """Return the error for an effort that the provider rejects."""
        effort, hint = request_format.effort, EffortRejected.hint
        if request_format.has_tools:
            hint += " A provider that rejects it only together with tools accepts it with `answer_form: short`."
        return EffortRejected(f"{text} (with `effort: {effort}`)", hint=hint)

    def _retry_after(self, headers: Mapping[str, str]) -> float | None:
        """Return the delay that a response asks for, in seconds."""
        return parse_retry_after(headers)

    def _downgrade(self, text: str, request_format: RequestFormat) -> ModelError:
        """Select the next output mode, unless the configuration fixes the mode."""
        if self._settings.mode != "auto":
            return SchemaRejected(text)
        lower = self._modes[self._modes.index(request_format.mode) + 1]
        return self._change_format(text, request_format, lower, mode=lower)

    def _change_format(self, text: str, request_format: RequestFormat, instead: str, **changes: Any) -> SchemaRejected:
        """Change the format of later requests, unless a concurrent call has already changed it."""
        request_format = request_format._replace(effort=None)
        if self._formats[request_format.key] == request_format:
            self._formats[request_format.key] = request_format._replace(**changes)
        error = SchemaRejected(text)
        error.instead = instead
        return error

    # -- status ---------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return the details of a listing; `key` is a handle, never a value."""
        modes = list(self._modes) if self._settings.mode == "auto" else [self._settings.mode]
        return {"base_url": self._base_url, "key": self._settings.key, "modes": modes}

    def check_key(self) -> None:
        """Check, without reading it and without a connection, that there is a key and that the server may have it.

        Raises:
            ModelError: Why the model cannot be used.
        """
        if not self._model_key.handle and self._needs_key:
            raise self._model_key.missing(self.adapter, self._settings.base_url)
        self._model_key.check(self._base_url)


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay in a `Retry-After` header (seconds or a date); `None` if it is missing, invalid or past."""
    text = headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


_PHRASES = {
    # The phrases are those of OpenAI, vLLM, llama.cpp, Anthropic and Gemini. `In context=('properties', …)` is about a
    # schema and must not match.
    "length": (
        "context length",
        "context size",
        "context window",
        "too many tokens",
        "prompt is too long",
        "exceeds the maximum number of tokens",
    ),
    "tools": ("schema for function", "tools.", "function_declarations["),
    "format": ("response_format", "json_object", "schema", "grammar", "output_config", "response mime type"),
    "effort": ("reasoning", "thinking", "effort", "budget_tokens"),
    "root": ("anyof", "oneof", "root", "top level", "top-level", 'type: "object"'),
}
"""What error messages say about a prompt beyond the context window, a rejected tool definition, which another output
mode does not fix, a rejected output format, a rejected effort, and a schema whose root is not one object."""


def is_about(subject: Literal["length", "tools", "format", "effort", "root"], message: str) -> bool:
    """Recognize the subject of an error message."""
    lowered = message.lower()
    if subject == "effort" and "schema" in lowered:
        return False  # a field of the schema can have any name
    return any(phrase in lowered for phrase in _PHRASES[subject])


def _is_about_format(message: str) -> bool:
    return is_about("format", message) and not is_about("tools", message)
