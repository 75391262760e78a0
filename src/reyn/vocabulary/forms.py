"""One form of an op: what it takes, what it gives back, and what a crash in the middle of it means."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Effect = Literal["pure", "idempotent", "reconcilable", "unsafe"]


class OpForm(msgspec.Struct, frozen=True):
    op: str | None
    """`read`, `write`, …; `None` for a kind with a single form."""
    summary: str
    arguments: dict[str, Any]
    """The closed JSON Schema of the whole op object."""
    effect: Effect
    result: dict[str, Any]
    """The JSON Schema of the result, whatever its status."""
    example: dict[str, Any]

    @property
    def shape(self) -> dict[str, Any]:
        """The example as a model is shown it: with marks for texts, because small models copy what they see."""
        return {name: value if name in ("kind", "op") else _marked(value, name) for name, value in self.example.items()}

    @property
    def defaults(self) -> dict[str, Any]:
        """What the fields mean that an op leaves out."""
        fields = self.arguments["properties"].items()
        return {name: schema["default"] for name, schema in fields if "default" in schema}

    @property
    def fields(self) -> str:
        """The fields beside `kind` and `op`, as a model is shown them: `path, offset?, limit?`."""
        first, *others = self.arguments.get("oneOf", [{"required": []}])
        needed = {*self.arguments["required"], *first["required"]}
        # Of the spellings for one thing a model is shown the first alone.
        hidden = {"kind", "op"}.union(*(other["required"] for other in others))
        shown = [name for name in self.arguments["properties"] if name not in hidden]
        return ", ".join(name if name in needed else f"{name}?" for name in shown)


def _marked(value: Any, name: str) -> Any:
    match value:
        case str():
            return f"<{name}>"
        case list():
            return [_marked(item, name) for item in value[:1]]
        case dict():
            return {key: _marked(item, key) for key, item in value.items()}
    return value
