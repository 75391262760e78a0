"""Adapter for the providers of LiteLLM: `litellm:PROVIDER/NAME`. Needs the extra `litellm`.

With a `key` or a `base_url`, requests go to the `base_url` and nowhere else. Without both, LiteLLM chooses the server
and takes the credentials from the environment, which a project may do only if it is trusted
(`reyn.permissions.trust`). LiteLLM estimates token counts that a server does not report, and reports truncated answers
as complete; the contract then rejects them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ModelBroken, ModelError, PromptTooLong
from reyn.models.openai import Chunk, OpenAIModel
from reyn.models.remote import MAX_ANSWER_LENGTH, RequestFormat
from reyn.models.streaming import StreamedReply

if TYPE_CHECKING:
    from reyn.config.models import Effort
    from reyn.models.protocol import ModelAnswer, ModelRequest

_VARIABLES = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise it downloads prices when it is imported
    "LITELLM_MODE": "PRODUCTION",  # otherwise it reads an `.env` file above its own folder, which may be the project's
}


class LiteLLMModel(OpenAIModel):
    """A model of a provider that LiteLLM knows."""

    adapter = "litellm"

    @classmethod
    def import_sdk(cls) -> Any:
        os.environ.update(_VARIABLES)
        import litellm

        litellm.suppress_debug_info = True  # it prints advice to the standard output
        litellm.disable_aiohttp_transport = True  # its sessions stay open
        return litellm

    def _first_format(self, request_format: RequestFormat) -> RequestFormat:
        return request_format

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Send one request and read the streamed answer to its end."""
        request_format, schema = self._format_of(request)
        options, reply = self._connect(), StreamedReply(request)
        body = self._body(request, request_format, schema)
        try:
            stream = await self._sdk.acompletion(**body, **options)
        except Exception as error:  # noqa: BLE001 - third-party code
            raise self._request_error(error, request_format) from None  # its message may quote the key
        try:
            add = self._adder(reply, request_format)
            async for chunk in stream:  # LiteLLM imitates the chunks of OpenAI's API
                add(msgspec.convert(chunk.model_dump(), Chunk))
                if reply.length > MAX_ANSWER_LENGTH:
                    break
            return self._answer(reply, request_format, "unknown")
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            has_status = isinstance(getattr(error, "status_code", None), int)
            is_connection = isinstance(error, self._sdk.APIConnectionError)
            translate = self._request_error if has_status and not is_connection else None
            raise (translate(error, request_format) if translate else self._stream_error(error)) from None

    def _new_client(self) -> dict[str, Any]:
        """Return the options of every call: LiteLLM has no client."""
        timeout = self._settings.timeout_seconds
        options: dict[str, Any] = {"timeout": timeout, "max_retries": 0, "num_retries": 0}
        if self._settings.key or self._settings.base_url:
            options |= {"api_base": self._settings.base_url, "api_key": self._key()}
        return options

    def _replace_key(self, client: dict[str, Any], key: str) -> None:
        client["api_key"] = key

    async def _close_client(self, client: dict[str, Any]) -> None:
        """Do nothing: LiteLLM keeps its connections for later calls and closes them when the process ends."""

    @property
    def _needs_key(self) -> bool:
        return False

    def _body(
        self, request: ModelRequest, request_format: RequestFormat, schema: dict[str, Any] | None
    ) -> dict[str, Any]:
        # A provider that has no such parameter gets the request without it.
        return super()._body(request, request_format, schema) | {"drop_params": True}

    @property
    def _fixes_temperature(self) -> bool:
        return False  # LiteLLM drops what a provider does not have

    def _check_effort(self, effort: Effort | None) -> None:
        """Check nothing: LiteLLM passes an effort on, and the provider rejects one that it does not have."""

    def _effort_fields(self, request_format: RequestFormat) -> dict[str, Any]:
        effort = request_format.effort
        if effort is None:
            return {}
        if isinstance(effort, int):
            fields: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": effort}}
        else:
            fields = {"reasoning_effort": effort}
        return fields | {"allowed_openai_params": list(fields)}  # otherwise it would be dropped silently

    def _request_error(self, error: Exception, request_format: RequestFormat) -> ModelError:
        sdk = self._sdk
        message = self._shorten(str(getattr(error, "message", "") or error))
        if isinstance(error, sdk.Timeout):
            return self.timeout_error()
        if isinstance(error, sdk.ContextWindowExceededError):
            return PromptTooLong(f"model `{self.name}` returned HTTP 400: {message}")
        if isinstance(error, sdk.ContentPolicyViolationError):
            return self._withheld(message)
        if isinstance(error, sdk.APIConnectionError):
            return self._connection_error(error)
        status = getattr(error, "status_code", None)
        if not isinstance(status, int):
            details = f"{type(error).__name__}: {message}"
            hint = "Check the version of `litellm`, then try again."
            return ModelBroken(f"the request to model `{self.name}` failed: {details}", hint=hint)
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        more = getattr(error, "litellm_response_headers", None) or {}
        return self._status_error(status, message, {**headers, **more}, request_format)

    def describe(self) -> dict[str, Any]:
        """Return the details of a listing."""
        return super().describe() | {"base_url": self._settings.base_url or "chosen by LiteLLM"}
