"""Requests through the clients of OpenAI's and Anthropic's SDKs: one POST, and an answer of server-sent events.

The SDK determines URL, authentication, version headers and connections. Reyn sends the request and reads the answer
itself, because the SDK takes several times longer. Bodies and events belong to the adapters; keys, formats and the
errors themselves belong to `remote`.
"""

from __future__ import annotations

from abc import abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from reyn.errors import ModelError
from reyn.models.remote import CONNECT_SECONDS, MAX_ANSWER_LENGTH, RemoteModel
from reyn.models.streaming import ENCODINGS, EventReader, StreamedReply, content_type, drain, limit_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from reyn.models.protocol import ModelAnswer, ModelRequest
    from reyn.models.remote import RequestFormat


class HttpModel(RemoteModel):
    """A model whose requests Reyn sends itself."""

    _path: ClassVar[str]
    """The path of the endpoint below the base URL."""
    _client_class: ClassVar[str]
    """The name of the client's class in the SDK."""
    _client_options: ClassVar[dict[str, Any]] = {}
    """Options of the client that only this SDK has."""
    _event: ClassVar[type[Any]]
    """The struct of an event of the stream, and of a whole document."""

    @classmethod
    def import_sdk(cls) -> Any:
        return import_module(cls.adapter)

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
        self._connect()
        http, reply = self._http, StreamedReply(request)
        try:
            response = await http.send(http.build_request("POST", self._url, content=body), stream=True)
        except Exception as error:  # noqa: BLE001 - third-party code
            raise self._transport_error(error) from None  # its message may quote the key
        try:
            if response.status_code >= 300:
                raise await self._response_error(response, request_format)
            kind = content_type(response)
            await self._read(response.stream, kind, self._adder(reply, request_format), reply)
            return self._answer(reply, request_format, kind)
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
        timeouts = self._sdk.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout))
        self._http = self._sdk.DefaultAsyncHttpxClient(
            timeout=timeouts,
            trust_env=self._trusts_environment,
            follow_redirects=False,
            event_hooks={"response": [limit_body]},
        )
        client = getattr(self._sdk, self._client_class)(
            api_key=self._key(), base_url=self._base_url, http_client=self._http, **self._client_options
        )
        # The SDK reads headers from the environment, and no public method clears them.
        client._custom_headers = {}  # noqa: SLF001
        self._url = type(client.base_url)(str(client.base_url).rstrip("/") + self._path)
        self._set_headers(client)
        return client

    def _set_headers(self, client: Any) -> None:
        """Send the headers of the SDK with every request."""
        headers = {**client.default_headers, **client.auth_headers, "Accept-Encoding": ENCODINGS}
        self._http.headers.update({name: value for name, value in headers.items() if isinstance(value, str)})

    def _replace_key(self, client: Any, key: str) -> None:
        client.api_key = key
        self._set_headers(client)

    async def _close_client(self, client: Any) -> None:
        await client.close()

    def _transport_error(self, error: Exception) -> ModelError:
        """Translate an exception that was raised before a response began."""
        names = {base.__name__ for base in type(error).__mro__}
        return self._connection_error(error) if names.isdisjoint(_TIMEOUTS) else self.timeout_error()

    async def _response_error(self, response: Any, request_format: RequestFormat) -> ModelError:
        """Translate a response with an error status."""
        content = await response.aread()
        try:
            body = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            body = None
        error = body.get("error", body) if isinstance(body, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        message = self._shorten(str(message or response.text or response.reason_phrase))
        target = self.scrub(f"{response.request.method} {response.request.url}")
        return self._status_error(response.status_code, message, response.headers, request_format, target)


_TIMEOUTS = ("ReadTimeout", "WriteTimeout", "PoolTimeout")
