"""Adapter for servers that implement OpenAI's chat completions API. Needs the extra `openai`.

In mode `auto` it downgrades from `json_schema` to `json_object` to `free` when a server rejects the output format, and
reports each step as an error with the next mode. Requests go only to the configured URL: environment variables of the
SDK and redirects are ignored. Retries belong to the kernel; reading the stream belongs to `streaming`.
"""

from __future__ import annotations

import asyncio
import math
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from reyn.config.values import OPENAI_URL
from reyn.errors import (
    ConfigError,
    KeyRejected,
    ModelBroken,
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
from reyn.journal.kinds import Usage
from reyn.models.chat_messages import to_wire, tool_wire
from reyn.models.decoding import decoding_schema
from reyn.models.native_reply import call_id
from reyn.models.protocol import PLAIN_TEXT, ModelAnswer
from reyn.models.sdk_logs import scrub_logs
from reyn.models.streaming import EMPTY_DELTA, ENCODINGS, content_type, limit_body, read_chunks
from reyn.models.tool_deltas import ToolCallCollector
from reyn.secrets import origin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reyn.config import ModelSettings
    from reyn.models.protocol import ModelRequest, OutputMode
    from reyn.secrets import Scrubber, Secrets

_OPENAI_VARIABLE = "OPENAI_API_KEY"
_MODES: tuple[OutputMode, ...] = ("json_schema", "json_object", "free")
_MAX_ANSWER_LENGTH = 2_000_000
"""Characters after which reading stops. The contract rejects far shorter answers."""
_MAX_MESSAGE_LENGTH = 500
_CONNECT_SECONDS = 10
_NO_KEY = "no-key-is-set"
"""Sent to servers without a configured key, because the SDK requires one."""
_NEWER_LIMIT = "max_completion_tokens"


class _RequestFormat(NamedTuple):
    """The form of a request. A call keeps its own copy, because concurrent calls may change the model's."""

    mode: OutputMode
    is_one_object: bool
    limit_field: str
    has_tools: bool = False
    is_plain_text: bool = False

    @property
    def key(self) -> tuple[bool, bool]:
        """The kind of request that has this format."""
        return self.has_tools, self.is_plain_text


class OpenAIModel:
    """A model behind a chat completions endpoint."""

    takes_time = True

    def __init__(
        self,
        name: str,
        model: str,
        settings: ModelSettings,
        secrets: Callable[[], Secrets],
        may_bind: Callable[[str, str], bool] = lambda *_: True,
    ) -> None:
        self._sdk = _import_sdk()  # takes a second, which must not count against the timeout of a call
        self.name = name
        self._model = model
        self._settings = settings
        self._secrets = secrets
        self._may_bind = may_bind
        # OpenAI rejects `anyOf` at the root of a schema, and its newer models reject `max_tokens`; most other servers
        # know only `max_tokens`.
        is_openai = settings.base_url is None
        mode: OutputMode = "json_schema" if settings.mode == "auto" else settings.mode
        # Some servers cannot constrain the output of a request with tools, so its format is found out separately.
        limit_field = _NEWER_LIMIT if is_openai else "max_tokens"
        self._formats = {
            (has_tools, is_plain): _RequestFormat(
                "free" if is_plain else mode, is_openai, limit_field, has_tools, is_plain
            )
            for has_tools in (False, True)
            for is_plain in (False, True)
        }
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_key_rejected = False
        self._scrub: Callable[[str], str] = str
        self._scrubber: Scrubber | None = None

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Send one request and read the streamed answer to its end."""
        request_format = self._formats[bool(request.tools), request.contract == PLAIN_TEXT]
        client = self._connect()
        try:
            # `chat.completions.create` spends more time on validating types than the call takes.
            stream = await client.post(
                "/chat/completions",
                body=self._body(request, request_format),
                options={"follow_redirects": False},
                cast_to=object,
                stream=True,
                stream_cls=self._sdk.AsyncStream[object],
            )
        except Exception as error:  # noqa: BLE001 - third-party code
            raise self._request_error(error, request_format) from None  # its message may quote the key
        try:
            async with stream:
                return await self._read_answer(stream.response, request_format, request)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            raise self._stream_error(error) from None

    def _connect(self) -> Any:
        """Return the client of the running event loop: connections cannot move between loops."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop = loop
            self._client = self._new_client()
        elif self._is_key_rejected:
            self._client.api_key = self._key()  # the operator may have replaced it
        self._is_key_rejected = False
        return self._client

    def _new_client(self) -> Any:
        timeout = self._settings.timeout_seconds
        client = self._sdk.AsyncOpenAI(
            api_key=self._key(),
            base_url=self._base_url,
            max_retries=0,
            timeout=self._sdk.Timeout(timeout, connect=min(_CONNECT_SECONDS, timeout)),
            # Proxies of the environment do not apply to servers on this machine.
            http_client=self._sdk.DefaultAsyncHttpxClient(
                trust_env=not _is_loopback(self._base_url),
                headers={"Accept-Encoding": ENCODINGS},
                event_hooks={"response": [limit_body]},
            ),
        )
        # The SDK reads these from the environment; only the project's configuration counts.
        client.organization = client.project = None
        client._custom_headers = {}  # noqa: SLF001 - no public way to clear them
        if self._scrubber is not None:
            scrub_logs(self._scrubber)  # the SDK has imported the HTTP libraries by now
        return client

    @property
    def _base_url(self) -> str:
        return self._settings.base_url or OPENAI_URL

    def _key(self) -> str:
        handle = self._settings.key
        if not handle:
            if self._settings.base_url is None:
                raise KeyRejected(f"no API key for model `{self.name}`", hint=self._missing_key_hint())
            return _NO_KEY
        try:
            secrets = self._secrets()
            key = secrets.resolve_for(
                handle, self._base_url, may_bind=self._may_bind(handle, origin_of(self._base_url))
            )
        except ConfigError as error:
            raise KeyRejected(f"no API key for model `{self.name}`: {error.message}", hint=error.hint) from error
        self._scrub = secrets.scrubber.scrub
        self._scrubber = secrets.scrubber
        if not (key.isascii() and key.isprintable() and " " not in key):
            message = f"the API key of model `{self.name}` contains whitespace or non-ASCII characters"
            raise KeyRejected(message, hint=f"Store it again without them, and check `{handle}`.")
        return key

    def _missing_key_hint(self) -> str:
        if self._has_openai_variable():
            condition = "" if self._settings.base_url is None else "if this server may receive it, "
            addition = f"add `key: env://{_OPENAI_VARIABLE}` to {self._settings_place()}."
            return f"`{_OPENAI_VARIABLE}` is set: {condition}{addition}"
        name = _OPENAI_VARIABLE if self._settings.base_url is None else "NAME"
        return (
            f"Add `key: secret://{name}` (a stored secret) or `key: env://{name}` (an environment variable) to "
            f"{self._settings_place()}."
        )

    def _has_openai_variable(self) -> bool:
        try:
            return self._secrets().has_variable(_OPENAI_VARIABLE)
        except ConfigError:  # the secret stores cannot be opened
            return False

    def _settings_place(self) -> str:
        """Return where in `reyn.yaml` the key belongs. A model that was named directly has no settings yet."""
        if self.name.partition(":")[0] == "openai":
            return f"an entry with `model: {self.name}` under `models` in reyn.yaml"
        return f"`models.{self.name}` in reyn.yaml"

    def _body(self, request: ModelRequest, request_format: _RequestFormat) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": to_wire(request.messages),
            request_format.limit_field: self._settings.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._settings.temperature is not None:
            body["temperature"] = self._settings.temperature
        if request.tools:
            body["tools"] = tool_wire(request.tools)
        if request_format.mode == "json_schema":
            schema = decoding_schema(request.contract, is_one_object=request_format.is_one_object)
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        elif request_format.mode == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    async def _read_answer(self, response: Any, request_format: _RequestFormat, request: ModelRequest) -> ModelAnswer:
        """Collect the chunks of an answer; raise `ResponseIncomplete` if the stream ends before the answer does."""
        parts: list[str] = []
        calls = ToolCallCollector()
        on_delta = request.on_delta
        length, usage, is_finished, is_truncated = 0, None, False, False
        async for chunk in read_chunks(response):
            if chunk.error is not None:
                raise self._chunk_error(chunk.error, request_format)
            if chunk.usage is not None:
                usage = _parse_usage(chunk.usage) or usage
            for choice in chunk.choices or ():
                if choice.index:
                    continue  # only one answer was requested
                delta = choice.delta or choice.message or EMPTY_DELTA
                text = delta.text
                parts.append(text)
                length += len(text) + (calls.add(delta.tool_calls) if delta.tool_calls else 0)
                is_finished = is_finished or bool(choice.finish_reason)
                is_truncated = is_truncated or choice.finish_reason == "length"
                if choice.finish_reason == "content_filter":
                    hint = "Check the prompt of the phase, or use another model."
                    raise RequestRejected(f"model `{self.name}` withheld its answer: content_filter", hint=hint)
                if on_delta is not None and text:
                    on_delta(text)
            if length > _MAX_ANSWER_LENGTH:
                is_finished = True
                break
        if not is_finished:
            what = "an incomplete answer" if length else f"no answer (content type: {content_type(response)})"
            raise ResponseIncomplete(f"model `{self.name}` sent {what}")
        tool_calls = calls.tool_calls(lambda number: call_id(request.run_id, request.call, number))
        return ModelAnswer("".join(parts), usage, request_format.mode, is_truncated, tool_calls=tool_calls)

    def scrub(self, text: str) -> str:
        """Replace the key in a text. Before the first call, no key is known."""
        return self._scrub(text)

    # -- errors ---------------------------------------------------------------------------------------

    def _request_error(self, error: Exception, request_format: _RequestFormat) -> ModelError:
        """Translate an exception that was raised before an answer began."""
        if isinstance(error, self._sdk.APIStatusError):
            target = self._scrub(f"{error.request.method} {error.request.url}")
            message, headers = self._error_message(error), error.response.headers
            return self._status_error(error.status_code, message, headers, request_format, target)
        cause = error.__cause__ or error
        if isinstance(error, self._sdk.APITimeoutError) and "Connect" not in type(cause).__name__:
            return self.timeout_error()
        details = f"{type(cause).__name__}: {self._shorten(str(cause))}"
        if not isinstance(error, self._sdk.APIConnectionError):
            message = f"the request to model `{self.name}` failed: {details}"
            return ModelBroken(message, hint="Check the versions of `openai` and `httpx`, then try again.")
        return ModelUnavailable(f"cannot connect to model `{self.name}` at {self._base_url}: {details}")

    def _stream_error(self, error: Exception) -> ModelError:
        """Translate an exception that interrupted an answer."""
        kind = type(error).__name__
        if "Timeout" in kind:
            return self.timeout_error()
        message = f"the answer of model `{self.name}` was interrupted: {kind}: {self._shorten(str(error))}"
        return ResponseIncomplete(message)

    def _chunk_error(self, error: Any, request_format: _RequestFormat) -> ModelError:
        """Translate an error that a server reports inside a response with status 200."""
        fields = error if isinstance(error, dict) else {"message": error}
        message = self._shorten(str(fields.get("message", error)))
        code = fields.get("code")
        if isinstance(code, int) and 400 <= code < 600:
            return self._status_error(code, message, {}, request_format)
        return ResponseIncomplete(f"model `{self.name}` reported an error instead of an answer: {message}")

    def timeout_error(self) -> ModelTimeout:
        """Return the error for an answer that took too long."""
        return ModelTimeout(f"model `{self.name}` did not answer within {self._settings.timeout_seconds} seconds")

    def _status_error(
        self, status: int, message: str, headers: Mapping[str, str], request_format: _RequestFormat, target: str = ""
    ) -> ModelError:
        text = f"model `{self.name}` returned HTTP {status}: {message}"
        if status in (401, 403):
            self._is_key_rejected = True
            return KeyRejected(text, hint=self._rejected_key_hint())
        if status in (408, 409, 425, 429) or status >= 500:
            retry_after = _parse_retry_after(headers)
            text += "" if retry_after is None else f" (retry after {retry_after:.0f} seconds)"
            transient = RateLimited(text) if status == 429 else ModelUnavailable(text)
            transient.retry_after = retry_after
            return transient
        if status < 400:
            location = self._scrub(headers.get("location", "another URL"))
            message = f"model `{self.name}` returned HTTP {status}, a redirect to {location}"
            return RequestRejected(message, hint="Set the model's `base_url` to the final URL.")
        if status == 404:
            hint = "Check the model's name and its `base_url`, which usually ends in `/v1`."
            return RequestRejected(f"{text} ({target})" if target else text, hint=hint)
        if status in (400, 413, 422):
            if status == 413 or _is_about_length(message):
                return PromptTooLong(text)
            if request_format.limit_field == "max_tokens" and _NEWER_LIMIT in message:
                return self._change_format(text, request_format, _NEWER_LIMIT, limit_field=_NEWER_LIMIT)
            if request_format.mode != "free" and _is_about_schema(message) and not _is_about_tools(message):
                return self._downgrade(text, message, request_format)
        return RequestRejected(text)

    def _rejected_key_hint(self) -> str:
        handle = self._settings.key
        if not handle:
            return self._missing_key_hint()
        if handle.startswith("env://"):
            return f"Set `{handle.removeprefix('env://')}` to a valid key, then resume the run."
        return f"Store a valid key as the secret `{handle.removeprefix('secret://')}`, then resume the run."

    def _downgrade(self, text: str, message: str, request_format: _RequestFormat) -> ModelError:
        """Select the next output mode, unless the configuration fixes the mode."""
        if request_format.mode == "json_schema" and not request_format.is_one_object and _is_about_root(message):
            return self._change_format(text, request_format, "json_schema, one object", is_one_object=True)
        if self._settings.mode != "auto":
            return SchemaRejected(text)
        lower = _MODES[_MODES.index(request_format.mode) + 1]
        return self._change_format(text, request_format, lower, mode=lower)

    def _change_format(self, text: str, request_format: _RequestFormat, instead: str, **changes: Any) -> SchemaRejected:
        """Change the format of later requests, unless a concurrent call has already changed it."""
        if self._formats[request_format.key] == request_format:
            self._formats[request_format.key] = request_format._replace(**changes)
        error = SchemaRejected(text)
        error.instead = instead
        return error

    def _error_message(self, error: Any) -> str:
        message = error.body.get("message") if isinstance(error.body, dict) else error.response.text
        return self._shorten(str(message or error.message))

    def _shorten(self, text: str) -> str:
        """Scrub, then truncate: the scrubber cannot recognize half a key."""
        return " ".join(self._scrub(text).split())[:_MAX_MESSAGE_LENGTH]

    # -- status ---------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return the details of a listing; `key` is a handle, never a value."""
        modes = list(_MODES) if self._settings.mode == "auto" else [self._settings.mode]
        return {"base_url": self._base_url, "key": self._settings.key, "modes": modes}

    def check_key(self) -> None:
        """Check, without reading it and without a connection, that there is a key and that the server may have it.

        Raises:
            ModelError: Why the model cannot be used.
        """
        handle = self._settings.key
        if not handle:
            if self._settings.base_url is None:
                raise KeyRejected(f"no API key for model `{self.name}`", hint=self._missing_key_hint())
            return
        try:
            self._secrets().check_present(handle)
            origin = origin_of(self._base_url)
            self._secrets().check_origin(handle, origin, may_bind=self._may_bind(handle, origin))
        except ConfigError as error:
            raise KeyRejected(f"no API key for model `{self.name}`: {error.message}", hint=error.hint) from error

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None


def _import_sdk() -> Any:
    try:
        import openai
    except ImportError as error:
        raise ModelNotInstalled("`openai` models need the extra `openai`", hint="pip install 'reyn[openai]'") from error
    return openai


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _parse_usage(usage: Any) -> Usage | None:
    """Return the token counts, or `None` unless both input and output tokens are present."""
    if not isinstance(usage, dict):
        return None
    input_tokens, output_tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if input_tokens is None or output_tokens is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if not isinstance(cached, int) or not isinstance(input_tokens, int) or not 0 <= cached <= input_tokens:
        cached = 0
    return Usage(input_tokens, output_tokens, cached)


def _parse_retry_after(headers: Mapping[str, str]) -> float | None:
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


def _is_about_length(message: str) -> bool:
    """Recognize OpenAI, vLLM and llama.cpp. `In context=('properties', …)` is about a schema and must not match."""
    lowered = message.lower()
    return any(phrase in lowered for phrase in ("context length", "context size", "context window", "too many tokens"))


def _is_about_root(message: str) -> bool:
    """Recognize servers that reject `anyOf` at the root of a schema or require `type: "object"` there."""
    lowered = message.lower()
    phrases = ("anyof", "oneof", "root", "top level", "top-level", 'type: "object"')
    return any(phrase in lowered for phrase in phrases)


def _is_about_tools(message: str) -> bool:
    """Recognize a rejected tool definition, which another output mode does not fix."""
    return "schema for function" in message.lower()


def _is_about_schema(message: str) -> bool:
    lowered = message.lower()
    return any(phrase in lowered for phrase in ("response_format", "json_object", "schema", "grammar"))
