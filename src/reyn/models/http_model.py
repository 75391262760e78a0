"""Requests to model servers: one POST, and an answer of server-sent events.

An SDK, if there is one, determines connections, authentication and version headers. Reyn sends the request and reads
the answer itself, because the SDKs take several times longer. Bodies and events belong to the adapters; keys, formats
and the errors themselves belong to `remote`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from reyn.config.models import ADAPTERS
from reyn.documents import JsonError, decode_json
from reyn.errors import ModelError
from reyn.models.remote import CONNECT_SECONDS, MAX_ANSWER_LENGTH, RemoteModel, RequestFormat
from reyn.models.streaming import ENCODINGS, EventReader, StreamedReply, content_type, drain, limit_body

if TYPE_CHECKING:
    from reyn.models.protocol import ModelAnswer, ModelRequest


class HttpModel(RemoteModel):
    """A model whose requests Reyn sends itself."""

    _path: ClassVar[str]
    """The path of the endpoint below the base URL."""
    _http_class: ClassVar[str] = "DefaultAsyncHttpxClient"
    """The name of the HTTP client's class in the SDK."""
    _event: ClassVar[type[Any]]
    """The struct of an event of the stream, and of a whole document."""

    @classmethod
    def import_sdk(cls) -> Any:
        return import_module(ADAPTERS[cls.adapter].package)

    @property
    def _resource(self) -> str:
        """The model in the path of a request."""
        return self._model

    @abstractmethod
    def _headers(self, http: Any, key: str) -> Mapping[str, Any]:
        """Return the headers of every request; those that are no texts are not sent."""

    @abstractmethod
    def _body(
        self, request: ModelRequest, request_format: RequestFormat, schema: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Return the body of a request."""

    @abstractmethod
    def _adder(self, reply: StreamedReply, request_format: RequestFormat) -> Callable[[Any], None]:
        """Return a function that adds an event of the stream to a reply."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Send one request and read the streamed answer to its end."""
        request_format, schema = self._format_of(request)
        body = msgspec.json.encode(self._body(request, request_format, schema))
        reply = StreamedReply(request)
        async with self._response(body, request_format) as response:
            kind = content_type(response)
            await self._read(response.stream, kind, self._adder(reply, request_format), reply)
            return self._answer(reply, request_format, kind)

    @asynccontextmanager
    async def _response(
        self, body: bytes, request_format: RequestFormat, path: str | None = None
    ) -> AsyncIterator[Any]:
        """Send a body, by default to the path of answers; the response is closed after the block.

        Errors before the response, of the server, and while it is read become errors of models.
        """
        http = self._connect()
        url = self._url if path is None else type(http.base_url)(self._base_url.rstrip("/") + path)
        try:
            response = await http.send(http.build_request("POST", url, content=body), stream=True)
        except Exception as error:  # noqa: BLE001 - third-party code
            raise self._transport_error(error) from None  # its message may quote the key
        try:
            if response.status_code >= 300:
                raise await self._response_error(response, request_format)
            yield response
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            raise self._stream_error(error) from None
        finally:
            await response.aclose()

    async def _read(
        self, stream: AsyncIterable[bytes], kind: str, add: Callable[[Any], None], reply: StreamedReply
    ) -> None:
        """Read a response of a content type to the end of the answer."""
        events = EventReader(self._event, add, is_document=kind.startswith("application/json"))
        contents = aiter(stream)  # `limit_body` has decoded it
        async for content in contents:
            events.add(content)
            if reply.length > MAX_ANSWER_LENGTH:
                return
            if events.is_done:
                break
        events.finish()
        if events.is_done:
            await drain(contents)

    def _new_client(self) -> Any:
        timeout = self._settings.timeout_seconds
        http = getattr(self._sdk, self._http_class)(
            timeout=self._sdk.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout)),
            trust_env=self._trusts_environment,
            follow_redirects=False,
            event_hooks={"response": [limit_body]},
        )
        self._url = type(http.base_url)(self._base_url.rstrip("/") + self._path.format(model=self._resource))
        self._replace_key(http, self._key())
        return http

    def _replace_key(self, client: Any, key: str) -> None:
        headers = {**self._headers(client, key), "Accept-Encoding": ENCODINGS, "Content-Type": "application/json"}
        client.headers.update({name: value for name, value in headers.items() if isinstance(value, str)})

    async def _close_client(self, client: Any) -> None:
        await client.aclose()

    def _transport_error(self, error: Exception) -> ModelError:
        """Translate an exception that was raised before a response began."""
        names = {base.__name__ for base in type(error).__mro__}
        return self._connection_error(error) if names.isdisjoint(_TIMEOUTS) else self.timeout_error()

    async def _response_error(self, response: Any, request_format: RequestFormat) -> ModelError:
        """Translate a response with an error status."""
        content = await response.aread()
        try:
            body = decode_json(content)
        except JsonError:
            body = None
        error = body.get("error", body) if isinstance(body, dict) else body
        fields = error if isinstance(error, dict) else {"message": error}
        message = self._shorten(
            str(fields.get("message") or content.decode(errors="replace") or response.reason_phrase)
        )
        target = self.scrub(f"{response.request.method} {response.request.url}")
        status, headers = self._details(fields, response.status_code, response.headers)
        return self._status_error(status, message, headers, request_format, target)

    def _details(self, error: dict[str, Any], status: int, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
        """Return status and headers of an error, with what only its body says."""
        return status, headers


_TIMEOUTS = ("ReadTimeout", "WriteTimeout", "PoolTimeout")


def sdk_headers(client: Any) -> dict[str, Any]:
    """Return the headers of an SDK's client, without those from the environment and those that describe the machine."""
    client._custom_headers = {}  # noqa: SLF001 - no public method clears them
    headers = {**client.default_headers, **client.auth_headers}
    return {name: value for name, value in headers.items() if not name.startswith("X-Stainless-")}
