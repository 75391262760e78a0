"""Any endpoint that speaks OpenAI's chat completions. Needs the extra `openai`.

The contract goes along as a schema where the server takes one; where it does not, that is told and the next way is
tried: `json_schema`, `json_object`, `free`. Answers are streamed and handed on whole. Retries are the kernel's, not the
SDK's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.errors import (
    AnswerCut,
    ConfigError,
    KeyRefused,
    ModelError,
    ModelMissing,
    ModelUnavailable,
    PromptTooLong,
    RateLimited,
    RequestRefused,
    SchemaRefused,
    SecretNameInvalid,
)
from reyn.journal.kinds import Usage
from reyn.models.decoding import decoding_schema, single_object
from reyn.models.protocol import ModelReply
from reyn.secrets import is_handle, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.config import ModelSettings
    from reyn.models.protocol import Mode, ModelRequest
    from reyn.secrets import Secrets

_MODES: tuple[Mode, ...] = ("json_schema", "json_object", "free")
_LONGEST_ANSWER = 2_000_000
"""Characters that are read of an answer; what is longer is rejected by the contract anyway."""
_NO_KEY = "no-key-is-set"


class OpenAIModel:
    takes_time = True

    def __init__(self, name: str, model: str, settings: ModelSettings, secrets: Callable[[], Secrets]) -> None:
        self.name = name
        self._model = model
        self._settings = settings
        self._secrets = secrets
        if settings.key is not None and not is_handle(settings.key):
            raise SecretNameInvalid(
                f"the key of the model `{name}` is written out",
                hint="Write `key: secret://NAME`; `reyn secret set NAME`.",
            )
        self._mode: Mode = "json_schema" if settings.mode == "auto" else settings.mode
        self._client: Any = None

    async def complete(self, request: ModelRequest) -> ModelReply:
        sdk = _sdk()
        if self._client is None:
            self._client = sdk.AsyncOpenAI(
                api_key=self._key(),
                base_url=self._settings.base_url,
                max_retries=0,
                timeout=self._settings.timeout,
            )
        try:
            stream = await self._client.chat.completions.create(**self._asked(request))
            return await _gathered(stream, self._mode)
        except ModelError:
            raise
        except Exception as error:
            raise self._fault(sdk, error) from error

    def _key(self) -> str:
        if not self._settings.key:
            return _NO_KEY
        try:
            return self._secrets().get(name_of(self._settings.key))
        except ConfigError as error:
            raise KeyRefused(f"the key of `{self.name}` cannot be had: {error.message}", hint=error.hint) from error

    def _asked(self, request: ModelRequest) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": message.role, "content": message.text} for message in request.messages],
            "max_tokens": self._settings.max_tokens,
            "temperature": self._settings.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._mode == "json_schema":
            schema = single_object(decoding_schema(request.contract, text_length=4_000))
            asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        elif self._mode == "json_object":
            asked["response_format"] = {"type": "json_object"}
        return asked

    def _fault(self, sdk: Any, error: Exception) -> ModelError:
        """What the SDK, or what it stands on, says, as one of ours."""
        if isinstance(error, sdk.APIStatusError):
            return self._refusal(error.status_code, _words(error), error.response.headers)
        if isinstance(error, sdk.APITimeoutError):
            return ModelUnavailable(f"`{self.name}`: no connection within {self._settings.timeout} seconds")
        if isinstance(error, sdk.APIConnectionError):
            cause = error.__cause__ or error
            return ModelUnavailable(f"`{self.name}` cannot be reached: {cause}")
        return AnswerCut(f"the answer of `{self.name}` broke off: {type(error).__name__}: {error}")

    def _refusal(self, status: int, message: str, headers: Any) -> ModelError:
        words = f"`{self.name}` says {status}: {message}"
        if status in (401, 403):
            return KeyRefused(words)
        if status == 429:
            limited = RateLimited(words)
            limited.retry_after = _seconds(headers.get("retry-after"))
            return limited
        if status in (408, 409, 425) or status >= 500:
            unavailable = ModelUnavailable(words)
            unavailable.retry_after = _seconds(headers.get("retry-after"))
            return unavailable
        if status in (400, 422) and self._mode != "free" and _is_about_schema(message):
            return self._step_down(words)
        if status in (400, 413) and ("context" in message.lower() or status == 413):
            return PromptTooLong(words)
        return RequestRefused(words)

    def _step_down(self, words: str) -> ModelError:
        """The next way to hold the model to its contract, if it was left to us."""
        refused = SchemaRefused(words)
        if self._settings.mode == "auto":
            self._mode = _MODES[_MODES.index(self._mode) + 1]
            refused.instead = self._mode
        return refused

    def describe(self) -> dict[str, Any]:
        """What `reyn models` tells."""
        modes = list(_MODES) if self._settings.mode == "auto" else [self._settings.mode]
        return {"base_url": self._settings.base_url or "the SDK's own", "key": self._settings.key, "modes": modes}

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


async def _gathered(stream: Any, mode: Mode) -> ModelReply:
    """The whole text of a stream that came to its end."""
    parts: list[str] = []
    length, usage, is_over = 0, None, False
    async with stream:
        async for chunk in stream:
            if getattr(chunk, "usage", None):
                usage = Usage(chunk.usage.prompt_tokens or 0, chunk.usage.completion_tokens or 0)
            for choice in chunk.choices or ():
                text = (choice.delta.content if choice.delta else None) or ""
                parts.append(text)
                length += len(text)
                is_over = is_over or choice.finish_reason is not None
            if length > _LONGEST_ANSWER:
                is_over = True
                break
    if not is_over:
        raise AnswerCut("the server ended the answer before it was whole" if parts else "the server sent no answer")
    return ModelReply("".join(parts), usage, mode)


def _words(error: Any) -> str:
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else None
    return str(message or getattr(error, "message", error))[:500]


def _seconds(words: str | None) -> float | None:
    try:
        return max(0.0, float(words)) if words else None
    except ValueError:
        return None


def _is_about_schema(message: str) -> bool:
    lowered = message.lower()
    return any(word in lowered for word in ("response_format", "json_schema", "json_object", "schema", "grammar"))
