"""The adapter `echo`: finish every phase with a value that its contract accepts, and repeat the input in its texts.

A complete adapter in one module. The entry point in `pyproject.toml` registers it as `echo:NAME`. An adapter for a
server would send `request.messages` there, with `setup.key(url)` as its key.
"""

from __future__ import annotations

import json
from typing import Any

from reyn.errors import ModelUnavailable
from reyn.models import ModelAnswer, ModelRequest, ModelSetup


class EchoModel:
    """Answers from the contract. `echo:asleep` never answers."""

    takes_time = False

    def __init__(self, setup: ModelSetup) -> None:
        self.name = setup.name
        self._is_asleep = setup.model == "asleep"

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer a request."""
        if self._is_asleep:
            raise ModelUnavailable(f"model `{self.name}` is asleep")
        said = json.dumps(request.input["data"]) if request.input else "echo"
        return ModelAnswer(json.dumps(example_of(request.contract, said)), mode="free")


def example_of(schema: Any, text: str) -> Any:
    """Return a value that a schema accepts, with `text` as its texts."""
    if not isinstance(schema, dict):
        return text
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return example_of(branches[0], text)
    match schema.get("type"):
        case "object":
            return {name: example_of(schema["properties"][name], text) for name in schema.get("required", ())}
        case "array":
            return [example_of(schema.get("items"), text)] * schema.get("minItems", 0)
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case "null":
            return None
    return text[: schema.get("maxLength", len(text))]
