"""Operations of the API: what each takes and returns, and how a request becomes a call of its handler.

Routes, checks and the OpenAPI document come from the operations that the modules declare.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.responses import Response

from reyn.documents import JsonError, check_values
from reyn.errors import RequestInvalid, RequestTooLarge, ReynError
from reyn.gateway.problems import problem_response

if TYPE_CHECKING:
    from starlette.requests import Request

    from reyn.gateway.access import Principal
    from reyn.gateway.site import Gateway
    from reyn.journal.results import TokenScope

_SMALL_BODY = 10_000
_encode = msgspec.json.Encoder(enc_hook=str).encode


class ApiCall(NamedTuple):
    """A request to an operation."""

    site: Gateway
    principal: Principal
    path: Mapping[str, str]
    query: Any
    body: Any
    request: Request

    @property
    def run(self) -> str:
        """The id of the run in the path. The principal may see its skill."""
        return self.site.run_for(self.path["run"], self.principal).run_id

    @property
    def origin(self) -> str:
        """The id of the run in the path, from which the request starts something new: a run, or a turn of an agent.

        A run of one skill may have sub-runs of others. The principal sees them, and starts none of those skills.
        """
        row = self.site.run_for(self.path["run"], self.principal)
        self.principal.check_skill(row.skill)
        return row.run_id


class Operation(NamedTuple):
    """One operation of the API.

    Attributes:
        method: The HTTP method.
        path: The path, with parameters in braces.
        scope: The scope that it needs; `None` for everybody.
        handler: Performs it; its docstring describes it. A plain function runs in a thread.
        query: The type of the query parameters.
        body: The type of the body.
        result: The type of the result; `None` for a response of its own.
        media_type: The media type of such a response.
        status: The HTTP status of success.
    """

    method: str
    path: str
    scope: TokenScope | None
    handler: Callable[[ApiCall], Any]
    query: Any = None
    body: Any = None
    result: Any = None
    media_type: str = "application/json"
    status: int = 200

    @property
    def name(self) -> str:
        """The id of the operation."""
        return self.handler.__name__

    async def respond(self, site: Gateway, request: Request) -> Response:
        """Perform the operation for a request."""
        try:
            principal = site.principal_of(request, self.scope)
            query = _decode_query(request, self.query)
            body = _decode_body(await self._read_body(request), self.body)
            call = ApiCall(site, principal, request.path_params, query, body, request)
            if inspect.iscoroutinefunction(self.handler):
                result = await self.handler(call)
            else:
                result = await asyncio.to_thread(self.handler, call)
        except ReynError as error:
            return problem_response(error)
        if isinstance(result, Response):
            return result
        return Response(_encode(result), self.status, media_type="application/json")

    async def _read_body(self, request: Request) -> bytes:
        """Return the body. What everybody may send, and what is for no body, is small.

        Raises:
            RequestTooLarge: It is too large.
        """
        if self.scope is not None and self.body is not None:
            return await request.body()  # up to the limit of the guard
        content = bytearray()
        async for piece in request.stream():
            content += piece
            if len(content) > _SMALL_BODY:
                raise RequestTooLarge(f"the body is larger than {_SMALL_BODY:,} bytes")
        return bytes(content)


def operation(
    method: str,
    path: str,
    scope: TokenScope | None,
    *,
    query: Any = None,
    body: Any = None,
    result: Any = None,
    media_type: str = "application/json",
    status: int = 200,
) -> Callable[[Callable[[ApiCall], Any]], Operation]:
    """Declare a handler as an operation."""

    def declare(handler: Callable[[ApiCall], Any]) -> Operation:
        return Operation(method, path, scope, handler, query, body, result, media_type, status)

    return declare


def _decode_query(request: Request, kind: Any) -> Any:
    """Return the query parameters as a value. A parameter may be repeated where the type has a list."""
    given = request.query_params
    if kind is None:
        if given:
            raise RequestInvalid(f"`{next(iter(given))}` is no parameter of this address")
        return None
    fields = _query_fields(kind)
    values: dict[str, Any] = {}
    for name in given:
        if name not in fields:
            raise RequestInvalid(f"`{name}` is no parameter of this address; there are {', '.join(fields)}")
        texts = given.getlist(name)
        values[name] = texts if fields[name] else texts[-1]
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RequestInvalid(f"a parameter is invalid: {error}") from error


@cache
def _query_fields(kind: Any) -> dict[str, bool]:
    """Return the names of the parameters, and whether each is a list."""
    types = {field.name: str(field.type) for field in msgspec.structs.fields(kind)}
    return {name: "tuple" in text or "list" in text for name, text in types.items()}


def _decode_body(content: bytes, kind: Any) -> Any:
    if kind is None:
        if content.strip() not in (b"", b"{}"):
            raise RequestInvalid("this address takes no body")
        return None
    try:
        check_values(content)
        return msgspec.json.decode(content or b"{}", type=kind)
    except JsonError as error:
        raise RequestTooLarge(f"the body is too large: {error}") from error
    except msgspec.ValidationError as error:
        raise RequestInvalid(f"the body is invalid: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestInvalid(f"the body is not valid JSON: {error}") from error
