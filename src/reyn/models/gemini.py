"""Adapter for the Gemini API. Needs the extra `gemini`.

It constrains the output with `responseJsonSchema` and uses native function calling. Gemini caches prompt prefixes by
itself; Reyn puts the static part first and reports the cached tokens. Requests belong to `http_model`, key and errors
to `remote`.
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config.models import thought_tokens
from reyn.errors import ResponseIncomplete
from reyn.journal.kinds import Usage
from reyn.models.chat_messages import NO_TEXT, decode_arguments, system_text, to_turns
from reyn.models.decoding import GEMINI
from reyn.models.http_model import HttpModel
from reyn.models.remote import is_about

if TYPE_CHECKING:
    from reyn.models.messages import Image, Message
    from reyn.models.protocol import ModelRequest, ToolDefinition
    from reyn.models.remote import RequestFormat
    from reyn.models.streaming import StreamedReply

_BROKEN = frozenset(
    ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "OTHER")
)
"""Reasons to stop after which another attempt may succeed."""
_SIGNATURE = base64.b64encode(b"skip_thought_signature_validator").decode()
"""Sent with function calls of another model, and of one that sent no signature: the API requires one."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")
_URL_SAFE = str.maketrans("+/", "-_")


class GeminiChunk(msgspec.Struct, rename="camel"):
    """The fields that Reyn reads from a chunk or from a whole document."""

    candidates: list[dict[str, Any]] | None = None
    usage_metadata: dict[str, Any] | None = None
    prompt_feedback: dict[str, Any] | None = None
    error: Any = None


class GeminiModel(HttpModel):
    """A model behind the Gemini API."""

    adapter = "gemini"
    _path = "/v1/{model}:streamGenerateContent?alt=sse"
    _http_class = "AsyncClient"
    _event = GeminiChunk
    _truncated = frozenset(("MAX_TOKENS", "CONTINUATION"))
    _subset = GEMINI

    @property
    def _resource(self) -> str:
        return self._model if self._model.startswith(("models/", "tunedModels/")) else f"models/{self._model}"

    def _headers(self, http: Any, key: str) -> Mapping[str, Any]:
        return {"x-goog-api-key": key}

    def _body(
        self, request: ModelRequest, request_format: RequestFormat, schema: dict[str, Any] | None
    ) -> dict[str, Any]:
        config: dict[str, Any] = {"maxOutputTokens": self._settings.answer_tokens(request.effort)}
        if request_format.effort is not None:
            config["thinkingConfig"] = _thinking(request_format)
        if self._settings.temperature is not None:
            config["temperature"] = self._settings.temperature
        if request_format.mode in ("json_schema", "json_object"):
            config["responseMimeType"] = "application/json"
        if schema is not None:
            config["responseJsonSchema"] = schema
        body: dict[str, Any] = {"contents": to_contents(request.messages), "generationConfig": config}
        if system := system_text(request.messages):
            body["systemInstruction"] = {"parts": [{"text": system}], "role": "user"}
        if request.tools:
            body["tools"] = to_gemini_tools(request.tools)
        return body

    def _adder(self, reply: StreamedReply, request_format: RequestFormat) -> Callable[[GeminiChunk], None]:
        def add(chunk: GeminiChunk) -> None:
            if chunk.error is not None:
                raise self._chunk_error(chunk.error, request_format)
            if blocked := (chunk.prompt_feedback or {}).get("blockReason"):
                raise self._withheld(str(blocked))
            if chunk.usage_metadata:
                reply.usage = _parse_usage(chunk.usage_metadata)
            for candidate in chunk.candidates or ():
                if not candidate.get("index"):  # only one answer was requested
                    self._add(reply, candidate)

        return add

    def _add(self, reply: StreamedReply, candidate: dict[str, Any]) -> None:
        """Add a piece of the answer."""
        for part in (candidate.get("content") or {}).get("parts") or ():
            place = -1
            if call := part.get("functionCall"):
                arguments = msgspec.json.encode(call.get("args") or {}).decode()
                place = len(reply.calls)
                reply.add_call(call.get("id") or "", call.get("name") or "", arguments)
            if part.get("thought"):
                reply.add_thought(part.get("text"))
            else:
                reply.add_text(part.get("text") or "")
                if isinstance(signature := part.get("thoughtSignature"), str) and signature:
                    reply.add_opaque({"call": place, "signature": signature})
        if reason := candidate.get("finishReason"):
            self._finish(reason, candidate.get("finishMessage"), reply)

    def _finish(self, reason: str, message: str | None, reply: StreamedReply) -> None:
        details = f"{reason}: {message}" if message else reason
        if reason in _BROKEN:
            raise ResponseIncomplete(f"model `{self.name}` sent no valid answer: {self._shorten(details)}")
        if reason != "STOP" and reason not in self._truncated:
            raise self._withheld(details)
        reply.stop = reason

    def _other_format(self, message: str, request_format: RequestFormat) -> tuple[str, dict[str, Any]] | None:
        is_level = isinstance(request_format.effort, str) and request_format.thinks
        if is_level and request_format.has_effort_levels and is_about("effort", message):
            return "thinking budget", {"has_effort_levels": False}  # of models before Gemini 3
        return super()._other_format(message, request_format)

    def _details(self, error: dict[str, Any], status: int, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
        listed = error.get("details")
        details = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
            status = 401  # reported as 400
        delays = [found for detail in details if (found := _DURATION.fullmatch(str(detail.get("retryDelay", ""))))]
        if delays and "retry-after" not in headers:
            headers = {**headers, "retry-after": delays[0][1]}
        return status, headers


def _thinking(request_format: RequestFormat) -> dict[str, Any]:
    """Return how the model thinks. No level switches thinking off; a budget of 0 does, where a model can."""
    effort = request_format.effort
    if effort == "none":
        return {"thinkingBudget": 0}
    if isinstance(effort, str) and request_format.has_effort_levels:
        return {"thinkingLevel": effort, "includeThoughts": True}
    return {"thinkingBudget": thought_tokens(effort), "includeThoughts": True}


def _parse_usage(counts: dict[str, Any]) -> Usage | None:
    """Return the token counts, which are cumulative; `None` unless the counts of input and output are present."""
    read, written = counts.get("promptTokenCount"), counts.get("candidatesTokenCount")
    if read is None:
        return None
    read += counts.get("toolUsePromptTokenCount") or 0
    cached, thought = counts.get("cachedContentTokenCount") or 0, counts.get("thoughtsTokenCount") or 0
    if written is not None:
        written += thought
    elif (total := counts.get("totalTokenCount")) is not None:  # an answer of thoughts alone, for instance
        written = total - read
    else:
        return None
    thoughts = thought if 0 < thought <= written else msgspec.UNSET
    return Usage(read, written, cached if 0 <= cached <= read else 0, 0, thoughts)


# -- messages and tools ------------------------------------------------------------------------------


def to_contents(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the messages after the system instruction."""
    names: dict[str, str] = {}

    def parts_of(message: Message) -> list[dict[str, Any]]:
        names.update({call.id: call.name for call in message.tool_calls})
        if message.role != "tool":
            return _parts(message)
        name = names.get(message.tool_call_id, "unknown")
        response = {"id": message.tool_call_id, "name": name, "response": {"result": message.text}}
        return [{"functionResponse": response}, *map(_image, message.images)]

    return to_turns(messages, "model", "parts", parts_of)


def to_gemini_tools(tools: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return tool definitions."""
    declarations = [
        {"name": tool.name, "description": tool.description, "parameters_json_schema": tool.parameters}
        for tool in tools
    ]
    return [{"functionDeclarations": declarations}]


def _parts(message: Message) -> list[dict[str, Any]]:
    thoughts = message.thoughts if message.thoughts and message.thoughts.api == GeminiModel.adapter else None
    signatures = _signatures(thoughts.parts) if thoughts is not None else {}
    parts: list[dict[str, Any]] = []
    if message.text or -1 in signatures:
        parts.append({"text": message.text} | ({"thoughtSignature": signatures[-1]} if -1 in signatures else {}))
    parts += map(_image, message.images)
    is_signed = any(number >= 0 for number in signatures)
    for number, call in enumerate(message.tool_calls):
        function = {"id": call.id, "name": call.name, "args": decode_arguments(call.arguments)}
        # Of calls that the model made together, only the first one has a signature.
        signature = signatures.get(number) if is_signed else _SIGNATURE
        parts.append({"functionCall": function} | ({"thoughtSignature": signature} if signature else {}))
    return parts or [{"text": NO_TEXT}]


def _signatures(parts: Iterable[Any]) -> dict[int, str]:
    """Return the signatures by call; -1 is the text. Recorded parts may be forged, and others are left out."""
    found: dict[int, str] = {}
    for part in parts:
        match part:
            case {"call": int(number), "signature": str(signature)}:
                found[number] = signature
    return found


def _image(image: Image) -> dict[str, Any]:
    if image.url:
        kind = image.media_type or mimetypes.guess_type(image.url.partition("?")[0])[0] or "image/jpeg"
        return {"fileData": {"file_uri": image.url, "mime_type": kind}}
    return {"inlineData": {"mime_type": image.media_type, "data": image.data.translate(_URL_SAFE)}}
