"""The ops that a phase offers, and the validation of the ops in an answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import msgspec

from reyn.jsonschema import Validator, compile_schema
from reyn.vocabulary import OpSpec, OpTarget, Vocabulary, form_name
from reyn.workspace.paths import RECORDED


def offered_ops(vocabulary: Vocabulary, allowed: tuple[str, ...]) -> tuple[OpSpec, ...]:
    """Return the specifications of the ops that a phase allows, in its order."""
    specs = (vocabulary.op(kind) for kind in allowed)
    return tuple(spec for spec in specs if spec is not None and spec.is_available and spec.is_offered)


class Duty(NamedTuple):
    """Work that a visit must do: it is done once one of several forms of ops has succeeded.

    Attributes:
        name: The entry of `must` in words. A name with a dot looks like a file, and small models copy it.
        forms: The names of the forms that the phase offers.
    """

    name: str
    forms: frozenset[str]


def duties_of(must: Iterable[Sequence[str]], vocabulary: Vocabulary, offered: tuple[OpSpec, ...]) -> tuple[Duty, ...]:
    """Return the work that `must` of a phase asks for, given the ops that the phase offers."""
    known = {form_name(spec.kind, form.op) for spec in offered for form in spec.forms}
    kinds = vocabulary.op_kinds
    return tuple(
        Duty(
            " or ".join(" ".join(name.rsplit(".", 1)) if name not in kinds else name for name in group),
            frozenset(form for name in group for form in vocabulary.forms_of(name) if form in known),
        )
        for group in must
    )


def limit_forms(offered: tuple[OpSpec, ...], left: Collection[Duty]) -> tuple[OpSpec, ...]:
    """Return the offered ops, limited to the forms that do work which is left."""
    names = frozenset[str]().union(*(duty.forms for duty in left))
    limited: list[OpSpec] = []
    for spec in offered:
        forms = tuple(form for form in spec.forms if form_name(spec.kind, form.op) in names)
        if len(forms) == 1 < len(spec.forms):
            limited.append(msgspec.structs.replace(spec, summary=forms[0].summary, forms=forms))
        elif forms:
            limited.append(msgspec.structs.replace(spec, forms=forms))
    return tuple(limited)


def with_truncated_reads(vocabulary: Vocabulary, offered: tuple[OpSpec, ...]) -> tuple[OpSpec, ...]:
    """Return the offered ops plus the forms that read truncated content, where the phase does not offer such a form."""
    own = {spec.kind: spec for spec in offered}
    for spec in vocabulary.ops:
        readers, known = spec.when_truncated, own.get(spec.kind)
        if readers and known is None:
            own[spec.kind] = msgspec.structs.replace(spec, summary=readers[0].summary, forms=readers, advice="")
        elif known is not None and not {form.op for form in readers} <= {form.op for form in known.forms}:
            own[spec.kind] = msgspec.structs.replace(known, forms=(*known.forms, *readers))
    return tuple(own.values())


def limit_targets(offered: tuple[OpSpec, ...], targets: Mapping[str, tuple[OpTarget, ...]]) -> tuple[OpSpec, ...]:
    """Return the offered ops, limited to the targets that a prompt lists. An op without a target is not offered.

    Args:
        offered: The specifications of the ops.
        targets: The targets by the op kind that lists them.
    """
    limited: list[OpSpec] = []
    for spec in offered:
        listed = targets.get(spec.targets_of or spec.kind) if spec.target_field is not None else None
        if listed is None:
            limited.append(spec)
        elif listed:
            limited.append(spec.limited_to(listed))
    return tuple(limited)


class OpRules:
    """Validates the ops of an answer against the offered ops. Schemas are compiled on first use."""

    def __init__(self, offered: tuple[OpSpec, ...]) -> None:
        self._offered = {spec.kind: spec for spec in offered}
        self._validators: dict[tuple[str, str | None], Validator] = {}
        self._truncated_reads: list[Validator] | None = None
        self.readable: frozenset[str] = frozenset()

    def reading(self, names: Collection[str]) -> OpRules:
        """Return the rules of a turn whose frame shows truncated content under these names."""
        rules = copy(self)
        rules.readable = frozenset(f"{RECORDED}{name}" for name in names)
        return rules

    def not_done(self, left: Iterable[Duty], ops: Sequence[Any]) -> tuple[Duty, ...]:
        """Return the work that none of these ops, which may be invalid, does."""
        found = {self._name(op) for op in ops}
        return tuple(duty for duty in left if duty.forms.isdisjoint(found))

    def _name(self, op: Any) -> str:
        """Return the name of the form that an op belongs to; empty if it is not offered."""
        kind = op.get("kind") if isinstance(op, dict) else None
        spec = self._offered.get(kind) if isinstance(kind, str) else None
        form = spec.form(op.get("op")) if spec is not None else None
        return form_name(str(kind), form.op) if form is not None else ""

    def only_reads_truncated(self, ops: Sequence[dict[str, Any]]) -> bool:
        """Return whether every op only reads more of truncated content; such a turn costs no act turn."""
        if self._truncated_reads is None:
            forms = [form for spec in self._offered.values() for form in spec.when_truncated]
            self._truncated_reads = [compile_schema(form.arguments) for form in forms]
        return all(any(read.is_valid(op) for read in self._truncated_reads) for op in ops)

    def first_error(self, ops: list[Any], instead: str) -> tuple[str, str] | None:
        """Return the JSON path and the error of the first op that is not offered or is malformed, or `None`.

        `instead` tells the model what to do where no ops are offered.
        """
        for index, op in enumerate(ops):
            error = self.error(op, f"$.control_ir[{index}]", instead)
            if error is not None:
                return error
        return None

    def error(self, op: Any, path: str, instead: str) -> tuple[str, str] | None:
        """Return the JSON path and the error of an op at a path, or `None`; see `first_error`."""
        if not self._offered:
            return "$.control_ir", f"no ops are offered here; {instead}"
        if not isinstance(op, dict):
            return path, "an op is a JSON object with a `kind`"
        kind = op.get("kind")
        spec = self._offered.get(kind) if isinstance(kind, str) else None
        if spec is None:
            return f"{path}.kind", f"{kind!r} is not offered here; use {_either(list(self._offered))}"
        form = spec.form(op.get("op"))
        if form is None:
            names = [form.op for form in spec.forms if form.op is not None]
            return f"{path}.op", f"{op.get('op')!r} is no {spec.kind} op here; use {_either(names)}"
        if spec.targets and isinstance(name := op.get(spec.target_field), str):
            names = [target.name for target in spec.targets]
            if name not in names:
                return f"{path}.{spec.target_field}", f"{name!r} is not offered here; use {_either(names)}"
        error = self._validator(spec.kind, form.op, form.arguments).first_error(op)
        if error:
            return error.path(path), error.message
        if form in spec.when_truncated and op["path"] not in self.readable:
            use = f"; use {_either(sorted(self.readable))}" if self.readable else ""
            return f"{path}.path", f"{op['path']!r} is not truncated in this prompt{use}"
        return None

    def _validator(self, kind: str, op: str | None, arguments: dict[str, Any]) -> Validator:
        key = (kind, op)
        if key not in self._validators:
            self._validators[key] = compile_schema(arguments)
        return self._validators[key]


def _either(names: list[str]) -> str:
    return " or ".join(repr(name) for name in names)
