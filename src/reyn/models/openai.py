"""Any endpoint that speaks OpenAI's chat completions. Needs the extra `openai`.

The contract goes along as a schema where the server takes one; where it does not, that is told and the next way is
tried: `json_schema`, `json_object`, `free`. Answers are streamed and handed on whole. Retries are the kernel's, not the
SDK's. Where requests go is what the configuration says: no variable of the SDK and no redirect changes it.
"""

from __future__ import annotations

import asyncio
import math
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from reyn.errors import (
    AnswerCut,
    ConfigError,
    KeyRefused,
    ModelBroken,
    ModelError,
    ModelMissing,
    ModelTimeout,
    ModelUnavailable,
    PromptTooLong,
    RateLimited,
    RequestRefused,
    SchemaRefused,
)
from reyn.journal.kinds import Usage
from reyn.models.decoding import decoding_schema
from reyn.models.protocol import ModelReply
from reyn.models.streaming import NOTHING, chunks, keep_bounded, kind_of
from reyn.secrets import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reyn.config import ModelSettings
    from reyn.models.protocol import Mode, ModelRequest
    from reyn.secrets import Secrets

_OPENAI = "https://api.openai.com/v1"
_MODES: tuple[Mode, ...] = ("json_schema", "json_object", "free")
_LONGEST_ANSWER = 2_000_000
"""Characters after which an answer is not read on; the contract rejects it long before."""
_CONNECT_SECONDS = 10
_NO_KEY = "no-key-is-set"
_NEWER_LIMIT = "max_completion_tokens"


class _Sent(NamedTuple):
    """How a call is asked: each keeps to what it was sent with, whatever the others find out meanwhile."""

    mode: Mode
    is_one_object: bool
    limit: str


class OpenAIModel:
    takes_time = True

    def __init__(self, name: str, model: str, settings: ModelSettings, secrets: Callable[[], Secrets]) -> None:
        self._sdk = _sdk()  # before the clock of a call runs: it takes a second
        self.name = name
        self._model = model
        self._settings = settings
        self._secrets = secrets
        # OpenAI itself takes no alternatives at the root, and its newer models refuse the old name of the limit; most
        # other servers know no other.
        is_openai = settings.base_url is None
        mode: Mode = "json_schema" if settings.mode == "auto" else settings.mode
        self._sent = _Sent(mode, is_openai, _NEWER_LIMIT if is_openai else "max_tokens")
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._key_is_refused = False
        self._scrub: Callable[[str], str] = str

    async def complete(self, request: ModelRequest) -> ModelReply:
        sent, client = self._sent, self._connected()
        try:
            # Not `chat.completions.create`, which spends more on types that nobody looks at than the call takes.
            stream = await client.post(
                "/chat/completions",
                body=self._asked(request, sent),
                options={"follow_redirects": False},
                cast_to=object,
                stream=True,
                stream_cls=self._sdk.AsyncStream[object],
            )
        except Exception as error:  # noqa: BLE001 - somebody else's code
            raise self._refused(error, sent) from None  # what it quotes may hold the key
        try:
            async with stream:
                return await self._read_answer(stream.response, sent, request.on_delta)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            raise self._broken_off(error) from None

    def _connected(self) -> Any:
        """One client for all calls of a loop: connections belong to a loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop = loop
            self._client = self._new_client()
        elif self._key_is_refused:
            self._client.api_key = self._key()  # it may be another by now
        self._key_is_refused = False
        return self._client

    def _new_client(self) -> Any:
        url, patience = self._settings.base_url or _OPENAI, self._settings.patience
        client = self._sdk.AsyncOpenAI(
            api_key=self._key(),
            base_url=url,
            max_retries=0,
            timeout=self._sdk.Timeout(patience, connect=min(_CONNECT_SECONDS, patience)),
            # A proxy is for what is far away.
            http_client=self._sdk.DefaultAsyncHttpxClient(
                trust_env=not _is_loopback(url), event_hooks={"response": [keep_bounded]}
            ),
        )
        # What it took from the environment is not what the operator of this project configured.
        client.organization = client.project = None
        client._custom_headers = {}  # noqa: SLF001 - there is no other way to them
        return client

    def _key(self) -> str:
        handle = self._settings.key
        if not handle:
            if self._settings.base_url is None:
                hint = "`reyn secret set OPENAI_API_KEY`, and `key: secret://OPENAI_API_KEY` in its settings."
                raise KeyRefused(f"`{self.name}` has no key", hint=hint)
            return _NO_KEY
        secrets = self._secrets()
        try:
            key = secrets.get(name_of(handle))
        except ConfigError as error:
            raise KeyRefused(f"the key of `{self.name}` cannot be had: {error.message}", hint=error.hint) from error
        self._scrub = secrets.scrubber.scrub
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise KeyRefused(f"the key of `{self.name}` holds a blank or another character that no header carries")
        return key

    def _asked(self, request: ModelRequest, sent: _Sent) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": message.role, "content": message.text} for message in request.messages],
            sent.limit: self._settings.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._settings.temperature is not None:
            asked["temperature"] = self._settings.temperature
        if sent.mode == "json_schema":
            schema = decoding_schema(request.contract, is_one_object=sent.is_one_object)
            asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        elif sent.mode == "json_object":
            asked["response_format"] = {"type": "json_object"}
        return asked

    async def _read_answer(self, response: Any, sent: _Sent, on_delta: Callable[[str], None] | None) -> ModelReply:
        """The whole text of an answer that came to its end."""
        parts: list[str] = []
        length, usage, is_over, is_cut = 0, None, False, False
        async for chunk in chunks(response):
            if chunk.error is not None:
                raise self._told(chunk.error, sent)
            usage = _counted(chunk.usage) or usage
            for choice in chunk.choices or ():
                if choice.index:
                    continue  # one answer is asked for; others are not ours
                said = choice.delta or choice.message or NOTHING
                parts.append(said.text)
                length += len(parts[-1])
                is_over = is_over or bool(choice.finish_reason)
                is_cut = is_cut or choice.finish_reason == "length"
                if choice.finish_reason == "content_filter":
                    hint = "Look at what the phase sends (`reyn frame`), or take another model."
                    raise RequestRefused(f"`{self.name}` held its answer back: content_filter", hint=hint)
                if on_delta is not None and parts[-1]:
                    on_delta(parts[-1])
            if length > _LONGEST_ANSWER:
                is_over = True
                break
        if not is_over:
            what = "ended its answer before it was whole" if length else f"sent no answer, but {kind_of(response)}"
            raise AnswerCut(f"`{self.name}` {what}")
        return ModelReply("".join(parts), usage, sent.mode, is_cut)

    # -- what went wrong ------------------------------------------------------------------------------

    def _refused(self, error: Exception, sent: _Sent) -> ModelError:
        """Why there was no answer at all."""
        if isinstance(error, self._sdk.APIStatusError):
            return self._refusal(error.status_code, self._words(error), error.response.headers, sent)
        cause = error.__cause__ or error
        if isinstance(error, self._sdk.APITimeoutError) and "Connect" not in type(cause).__name__:
            return self._too_late()
        words = f"{type(cause).__name__}: {self._shortened(str(cause))}"
        if not isinstance(error, self._sdk.APIConnectionError):
            return ModelBroken(f"`{self.name}` could not be asked: {words}")
        return ModelUnavailable(f"`{self.name}` cannot be reached: {words}")

    def _broken_off(self, error: Exception) -> ModelError:
        """Why an answer that had begun did not come to its end."""
        what = type(error).__name__
        if "Timeout" in what:
            return self._too_late()
        return AnswerCut(f"the answer of `{self.name}` broke off: {what}: {self._shortened(str(error))}")

    def _told(self, error: Any, sent: _Sent) -> ModelError:
        """What a server says in the place of an answer, after it had said that all is well."""
        fields = error if isinstance(error, dict) else {"message": error}
        words = self._shortened(str(fields.get("message", error)))
        code = fields.get("code")
        if isinstance(code, int) and 400 <= code < 600:
            return self._refusal(code, words, {}, sent)
        return AnswerCut(f"`{self.name}` gave up: {words}")

    def _too_late(self) -> ModelTimeout:
        return ModelTimeout(f"the model `{self.name}` did not answer within {self._settings.patience} seconds")

    def _refusal(self, status: int, message: str, headers: Mapping[str, str], sent: _Sent) -> ModelError:
        words = f"`{self.name}` says {status}: {message}"
        if status in (401, 403):
            self._key_is_refused = True
            name = name_of(self._settings.key) if self._settings.key else "NAME"
            return KeyRefused(words, hint=f"`reyn secret set {name}` stores the right one; then try again.")
        if status in (408, 409, 425, 429) or status >= 500:
            later = _seconds(headers)
            words += "" if later is None else f" (to be asked again in {later:.0f} seconds)"
            passing = RateLimited(words) if status == 429 else ModelUnavailable(words)
            passing.retry_after = later
            return passing
        if status < 400:
            where = self._scrub(headers.get("location", "another place"))
            return RequestRefused(f"`{self.name}` is not there: {where}", hint="Mend its `base_url`.")
        if status in (400, 413, 422):
            if status == 413 or _is_about_length(message):
                return PromptTooLong(words)
            if sent.limit == "max_tokens" and "max_completion_tokens" in message:
                return self._stepped(words, sent, _NEWER_LIMIT, limit=_NEWER_LIMIT)
            if sent.mode != "free" and _is_about_schema(message):
                return self._step_down(words, message, sent)
        return RequestRefused(words)

    def _step_down(self, words: str, message: str, sent: _Sent) -> ModelError:
        """The next way to hold the model to its contract, if it was left to us."""
        if sent.mode == "json_schema" and not sent.is_one_object and _is_about_the_root(message):
            return self._stepped(words, sent, "json_schema, one object", is_one_object=True)
        if self._settings.mode != "auto":
            return SchemaRefused(words)
        lower = _MODES[_MODES.index(sent.mode) + 1]
        return self._stepped(words, sent, lower, mode=lower)

    def _stepped(self, words: str, sent: _Sent, instead: str, **changes: Any) -> SchemaRefused:
        """From now on it is asked in another way; unless that was found out by another call meanwhile."""
        if self._sent == sent:
            self._sent = sent._replace(**changes)
        refused = SchemaRefused(words)
        refused.instead = instead
        return refused

    def _words(self, error: Any) -> str:
        message = error.body.get("message") if isinstance(error.body, dict) else error.response.text
        return self._shortened(str(message or error.message))

    def _shortened(self, words: str) -> str:
        """Scrubbed before it is cut: half a key is found by nobody."""
        return " ".join(self._scrub(words).split())[:500]

    def describe(self) -> dict[str, Any]:
        """What `reyn models` tells."""
        modes = list(_MODES) if self._settings.mode == "auto" else [self._settings.mode]
        return {"base_url": self._settings.base_url or _OPENAI, "key": self._settings.key, "modes": modes}

    async def listed(self) -> list[str]:
        """The models that the server says it has; none if it does not say."""
        client = self._connected()
        try:
            page = await client.get("/models", options={"follow_redirects": False}, cast_to=object)
        except self._sdk.NotFoundError:
            return []
        except Exception as error:  # noqa: BLE001 - somebody else's code
            raise self._refused(error, self._sent) from None
        known = page.get("data") if isinstance(page, dict) else None
        return [str(model.get("id")) for model in known if isinstance(model, dict)] if isinstance(known, list) else []

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None


def _sdk() -> Any:
    try:
        import openai
    except ImportError as error:
        raise ModelMissing("this model needs the extra `openai`", hint="pip install 'reyn[openai]'") from error
    return openai


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _counted(usage: Any) -> Usage | None:
    """Both numbers or none: half a count would be taken for a whole one."""
    if not isinstance(usage, dict):
        return None
    given, made = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if given is None or made is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if not isinstance(cached, int) or not isinstance(given, int) or not 0 <= cached <= given:
        cached = 0
    return Usage(given, made, cached)


def _seconds(headers: Mapping[str, str]) -> float | None:
    """How long the server wants us to wait: seconds, or until a date. Where that is no time at all, we decide."""
    words = headers.get("retry-after", "")
    try:
        seconds = float(words)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(words).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _is_about_length(message: str) -> bool:
    """OpenAI, vLLM and llama.cpp; not `In context=('properties', …)`, which is about a schema."""
    lowered = message.lower()
    return any(word in lowered for word in ("context length", "context size", "context window", "too many tokens"))


def _is_about_the_root(message: str) -> bool:
    """`anyOf` is not permitted at the root; a schema must be of type "object"."""
    lowered = message.lower()
    return any(word in lowered for word in ("anyof", "oneof", "root", "top level", "top-level", 'type: "object"'))


def _is_about_schema(message: str) -> bool:
    lowered = message.lower()
    return any(word in lowered for word in ("response_format", "json_object", "schema", "grammar"))
