"""The OpenAPI 3.1 document of the API, from the table of operations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from reyn._version import __version__
from reyn.gateway.problems import PROBLEM, ProblemDocument

if TYPE_CHECKING:
    from reyn.gateway.operations import Operation

_PARAMETER = re.compile(r"\{(\w+)\}")
_REF = "#/components/schemas/{name}"
_SESSION = "The name ends with the port that the browser names, and begins with `__Host-` if the site is encrypted."
_KEY = "The key that signing in returned. A session needs it beside the cookie."
_PROBLEM = {"$ref": _REF.format(name="ProblemDocument")}


def document(operations: tuple[Operation, ...]) -> dict[str, Any]:
    """Return the document."""
    types = [kind for one in operations for kind in (one.query, one.body, one.result) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, ProblemDocument], ref_template=_REF)
    by_type = dict(zip(map(id, types), schemas, strict=False))
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, by_type, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Reyn", "version": __version__, "summary": "Runs, questions and conversations of a project."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "reyn_session_8300", "description": _SESSION},
                "key": {"type": "apiKey", "in": "header", "name": "X-Session-Key", "description": _KEY},
            },
        },
    }


def _operation(one: Operation, schemas: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    lines = (one.handler.__doc__ or "").strip().split("\n", 1)
    text = " ".join(lines[1].split()) if len(lines) > 1 else ""
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(one.path)
    ]
    if one.query is not None:
        found = components[schemas[id(one.query)]["$ref"].rpartition("/")[2]]
        parameters += [
            {"name": name, "in": "query", "required": name in found.get("required", ()), "schema": schema}
            for name, schema in found["properties"].items()
        ]
    content = {one.media_type: {"schema": schemas[id(one.result)]} if one.result is not None else {}}
    described: dict[str, Any] = {
        "operationId": one.name,
        "summary": lines[0],
        "parameters": parameters,
        "responses": {
            str(one.status): {"description": "Success.", "content": {} if one.status == 204 else content},
            "default": {
                "description": "A problem.",
                "content": {PROBLEM: {"schema": _PROBLEM}},
            },
        },
        "security": [] if one.scope is None else [{"token": []}, {"session": [], "key": []}],
    }
    if text:
        described["description"] = text
    if one.scope is not None:
        described["x-scope"] = one.scope
    if one.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[id(one.body)]}},
        }
    return described
