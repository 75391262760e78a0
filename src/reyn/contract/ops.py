"""The ops that a phase offers become the rules for what a model may ask for, and the schema that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.jsonschema import compile_schema

if TYPE_CHECKING:
    from reyn.jsonschema import Validator
    from reyn.vocabulary import OpSpec, Vocabulary

KEPT = "workspace:.kept/"
"""Where the whole of what a frame shows in part can be read, in every phase."""


def offered_ops(vocabulary: Vocabulary, allowed: tuple[str, ...]) -> tuple[OpSpec, ...]:
    """The specs of the ops that a phase allows, in its order."""
    specs = (vocabulary.op(kind) for kind in allowed)
    return tuple(spec for spec in specs if spec is not None and spec.is_performed)


def with_kept_reads(vocabulary: Vocabulary, offered: tuple[OpSpec, ...]) -> tuple[OpSpec, ...]:
    """The same ops; where `file` is not among them, reading what was cut is."""
    spec = vocabulary.op("file")
    if spec is None or any(op.kind == "file" for op in offered):
        return offered
    form = spec.form("read")
    assert form is not None
    fields = form.arguments["properties"]
    path = fields["path"] | {"pattern": f"^{KEPT.replace('.', '[.]')}[A-Za-z0-9._-]{{1,80}}$"}
    arguments = form.arguments | {"properties": fields | {"path": path}}
    example = form.example | {"path": f"{KEPT}NAME"}
    only = msgspec.structs.replace(form, arguments=arguments, example=example)
    summary = "Read the rest of what is shown in part, by the path that its mark names."
    return (*offered, msgspec.structs.replace(spec, summary=summary, forms=(only,), advice=""))


class OpRules:
    """Compiled when a model first asks for an op."""

    def __init__(self, offered: tuple[OpSpec, ...]) -> None:
        self._offered = {spec.kind: spec for spec in offered}
        self._validators: dict[tuple[str, str | None], Validator] = {}

    def first_error(self, ops: list[Any], instead: str) -> tuple[str, str] | None:
        """The JSON path of the first op that is not offered or not well-formed, and why."""
        for index, op in enumerate(ops):
            wrong = self._error(op, f"$.control_ir[{index}]", instead)
            if wrong is not None:
                return wrong
        return None

    def _error(self, op: Any, path: str, instead: str) -> tuple[str, str] | None:
        if not self._offered:
            return "$.control_ir", f"no ops are offered here; {instead}"
        if not isinstance(op, dict):
            return path, "an op is a JSON object with a `kind`"
        spec = next((spec for kind, spec in self._offered.items() if kind == op.get("kind")), None)
        if spec is None:
            return f"{path}.kind", f"{op.get('kind')!r} is not offered here; use {_either(list(self._offered))}"
        names = [form.op for form in spec.forms if form.op is not None]
        form = next((form for form in spec.forms if form.op is None or form.op == op.get("op")), None)
        if form is None:
            return f"{path}.op", f"{op.get('op')!r} is no {spec.kind} op here; use {_either(names)}"
        wrong = self._validator(spec.kind, form.op, form.arguments).first_error(op)
        return (wrong.path(path), wrong.message) if wrong else None

    def _validator(self, kind: str, op: str | None, arguments: dict[str, Any]) -> Validator:
        key = (kind, op)
        if key not in self._validators:
            self._validators[key] = compile_schema(arguments)
        return self._validators[key]


def _either(names: list[str]) -> str:
    return " or ".join(repr(name) for name in names)
