"""The application: routes of the API, the OpenAPI document, and the web pages."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from reyn.errors import InternalError, RequestInvalid, ResourceNotFound
from reyn.gateway import acting, inspecting, project, reading, runs, services, skills
from reyn.gateway.guard import RequestGuard
from reyn.gateway.openapi import document
from reyn.gateway.operations import Operation
from reyn.gateway.problems import problem_response

if TYPE_CHECKING:
    from starlette.requests import Request

    from reyn.gateway.site import Gateway

_MODULES = (runs, inspecting, reading, acting, skills, project, services)
OPERATIONS = tuple(one for module in _MODULES for one in vars(module).values() if isinstance(one, Operation))
_TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_TYPES |= {"svg": "image/svg+xml", "json": "application/json"}
PAGES = (
    "/",
    "/runs",
    "/runs/{run}",
    "/compare",
    "/chat",
    "/chat/{run}",
    "/skills",
    "/skills/{name}",
    "/agents/{name}",
    "/usage",
    "/login",
)
"""The addresses of pages. All are one document, whose script draws what the address names."""


def create_app(site: Gateway, hosts: Collection[str], *, scheme: str = "http") -> RequestGuard:
    """Return the ASGI application.

    Args:
        site: The gateway.
        hosts: The values of `Host` that are accepted, such as `127.0.0.1:8300`.
        scheme: The scheme that browsers see: `https` with a certificate or behind a proxy that encrypts.
    """
    routes = [_route(site, one) for one in OPERATIONS]
    routes += [Route("/api/openapi.json", _openapi), Route("/static/{name}", _static)]
    routes += [Route(path, _page) for path in PAGES]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _not_found, Exception: _failed})
    return RequestGuard(app, hosts, scheme)


def _route(site: Gateway, one: Operation) -> Route:
    async def respond(request: Request) -> Response:
        return await one.respond(site, request)

    return Route(one.path, respond, methods=[one.method], name=one.name)


async def _openapi(_: Request) -> Response:
    return Response(_document(), media_type="application/json")


@cache
def _document() -> bytes:
    return msgspec.json.encode(document(OPERATIONS))


async def _page(_: Request) -> Response:
    return Response(_file("index.html"), media_type=_TYPES["html"])


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _names():
        return problem_response(ResourceNotFound(f"there is no file `{name}`"))
    return Response(_file(name), media_type=_TYPES[name.rpartition(".")[2]], headers={"Cache-Control": "no-cache"})


@cache
def _names() -> frozenset[str]:
    """The files of the pages. Nothing else can be requested, whatever a path spells."""
    return frozenset(
        one.name for one in files("reyn.gateway").joinpath("web").iterdir() if one.name.rpartition(".")[2] in _TYPES
    )


@cache
def _file(name: str) -> bytes:
    return files("reyn.gateway").joinpath("web", name).read_bytes()


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        return problem_response(ResourceNotFound(f"`{path}` does not take {request.method}"))
    if error.status_code == 404:
        return problem_response(ResourceNotFound(f"there is nothing at `{path}`"))
    return problem_response(RequestInvalid(str(error.detail)))


async def _failed(_: Request, error: Exception) -> Response:
    return problem_response(InternalError(f"the request failed: {type(error).__name__}"))
