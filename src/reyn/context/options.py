"""The acts among the options of a turn: each form of an op that a phase allows, or each target of one.

With the candidates, they are what a model may do next. A prompt lists all of them, one line each; the adapter of a
small model compares them. Too many lines are grouped by op kind.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from reyn.context.words import describe_fields, one_line
from reyn.models import OfferedAct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.vocabulary import OpForm, OpSpec, OpTarget

_MAX_OPTIONS = 8
"""The number of options, candidates included, above which the forms of an op are one option."""


_CLAUSE = re.compile(r"[:;,.](?=\s|$)")


def acts_of(ops: Sequence[OpSpec]) -> tuple[OfferedAct, ...]:
    """Return the acts that the ops on offer allow, in their order. Each has a label of its own."""
    return tuple(act for spec in ops for act in _acts(spec))


def best_acts(acts: tuple[OfferedAct, ...], best: Sequence[str]) -> tuple[OfferedAct, ...]:
    """Return the acts without those whose target is not among the best; all of them if there is no such list."""
    if not best:
        return acts
    names = ([value for field, value in act.fixed.items() if field not in ("kind", "op")] for act in acts)
    return tuple(act for act, targets in zip(acts, names, strict=True) if not targets or targets[0] in best)


def _acts(spec: OpSpec) -> list[OfferedAct]:
    kind = {"kind": spec.kind}
    if spec.target_field is not None and spec.targets:
        field = spec.target_field
        return [
            OfferedAct(f"{spec.kind} {one.name}", kind | {field: one.name}, one_line(one.text), _target_fields(one))
            for one in spec.targets
            if not spec.targets_of
        ]
    return [
        OfferedAct(
            f"{spec.kind} {form.op}" if form.op else spec.kind,
            kind | ({"op": form.op} if form.op else {}),
            _summary(spec, form),
            _form_fields(form),
            one_line(spec.summary) if len(spec.forms) > 1 else "",
        )
        for form in spec.forms
    ]


def _form_fields(form: OpForm) -> str:
    """Return the required arguments of a form in words; those of an MCP tool are one level below."""
    parameters = form.parameters
    properties, required = parameters["properties"], parameters["required"]
    if required == ["args"]:
        return _object_fields("args", properties["args"])
    needed = {"type": "object", "properties": {name: properties[name] for name in required}, "required": required}
    fields = describe_fields(needed)
    return f"{fields}.\n" if fields else ""


def _target_fields(target: OpTarget) -> str:
    return "".join(_object_fields(name, schema) for name, schema in target.arguments.items())


def _object_fields(name: str, schema: Any) -> str:
    fields = describe_fields(schema)
    return f"{name}: {fields}.\n" if fields else ""


def option_lines(ops: Sequence[OpSpec], candidates: int, *, lists_targets: bool = True) -> tuple[str, ...]:
    """Return the acts as a prompt lists them: one line for each form or target, or for each kind if there are many.

    Args:
        ops: The ops on offer.
        candidates: The number of candidates.
        lists_targets: Whether to list targets. A conversation lists them with its overviews.
    """
    targets = [spec.targets if lists_targets else () for spec in ops]
    if candidates + sum(len(named or spec.forms) for spec, named in zip(ops, targets, strict=True)) > _MAX_OPTIONS:
        return tuple(f"{spec.kind}: {one_line(str(spec.offered()['description']))}" for spec in ops)
    lines: list[str] = []
    for spec, named in zip(ops, targets, strict=True):
        if named:
            lines += [f"{spec.kind} {one.name}({', '.join(one.arguments)}): {one_line(one.text)}" for one in named]
        elif len(spec.forms) == 1:
            text = " ".join(part for part in (_summary(spec, spec.forms[0]), one_line(spec.advice)) if part)
            lines.append(f"{spec.kind}({spec.forms[0].fields}): {text}")
        else:
            lines += [f"{spec.kind} {form.op}({form.fields}): {_summary(spec, form)}" for form in spec.forms]
            lines += [f"every {spec.kind}: {one_line(spec.advice)}"] if spec.advice else []
    return tuple(lines)


def _summary(spec: OpSpec, form: OpForm) -> str:
    """Return when to choose a form; of one among several, what distinguishes it: the first clause."""
    text = one_line(form.summary or spec.summary)
    return text if len(spec.forms) == 1 else _CLAUSE.split(text, maxsplit=1)[0]


def act_shape(example: dict[str, Any]) -> str:
    """Return the shape of an op. `...` keeps it from being valid JSON: a model that copies an example copies values."""
    fields = (
        f"{json.dumps(name)}: {json.dumps(value) if name in ('kind', 'op') else '...'}"
        for name, value in example.items()
    )
    return f"{{{', '.join(fields)}}}"
