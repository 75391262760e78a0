"""Generate the Markdown reference of an op kind from its specification."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.vocabulary.error_names import ANY_ERROR, ERROR_NAMES

if TYPE_CHECKING:
    from reyn.vocabulary import OpForm, OpSpec


def op_page(spec: OpSpec, heading: str = "##") -> str:
    """Return the Markdown reference of an op kind, with the fields, result and example of each form."""
    permission = f" Permission: `{spec.permission}`." if spec.permission else ""
    why = f" {spec.why_unavailable.capitalize()}." if not spec.is_available and not spec.advice else ""
    if not spec.is_available and spec.advice:
        return f"{heading} {spec.kind}\n\n{spec.summary}{permission}\n\n{_sentence(spec.advice)}\n"
    lines = [f"{heading} {spec.kind}\n\n{spec.summary} Effect: *{spec.effect}*.{permission}{why}\n"]
    return "".join([*lines, *(_form(spec, form, heading) for form in spec.forms), *_errors(spec)])


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _errors(spec: OpSpec) -> list[str]:
    """Return the line with the names of the errors of an op kind, by which `nodes` of skill.md handles them."""
    names = ["any name" if name == ANY_ERROR else f"`{name}`" for name in spec.error_names]
    return [f"\nErrors: {', '.join(names)}.\n"] if spec.forms else []


class ErrorName(msgspec.Struct, frozen=True):
    """A name of an error: its meaning, if Reyn defines it, and the op kinds that declare it."""

    name: str
    meaning: str
    ops: tuple[str, ...]


def error_names(specs: Iterable[OpSpec]) -> list[ErrorName]:
    """Return the names of errors: Reyn's own, then those that ops and tools declare."""
    kinds: dict[str, list[str]] = {name: [] for name in ERROR_NAMES}
    for spec in specs:
        for name in spec.error_names if spec.forms else ():
            if name != ANY_ERROR:
                kinds.setdefault(name, []).append(spec.kind)
    return [ErrorName(name, ERROR_NAMES.get(name, ""), tuple(found)) for name, found in kinds.items()]


def _form(spec: OpSpec, form: OpForm, heading: str) -> str:
    title = f"\n{heading}# {spec.kind} {form.op}\n\n{form.summary} Effect: *{form.effect}*.\n" if form.op else ""
    required = {*form.arguments.get("required", ())}
    rows = [
        (f"`{name}`", _type(schema), "" if name in required else _note(schema))
        for name, schema in form.arguments["properties"].items()
        if name not in ("kind", "op")
    ]
    fields = ", ".join(f"`{name}`" for name in form.result["properties"])
    example = msgspec.json.encode(form.example).decode()
    return f"{title}\n{''.join(table(('field', 'type', ''), rows))}\nResult: {fields}.\n\n```json\n{example}\n```\n"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |\n"


def _note(schema: dict[str, Any]) -> str:
    return "optional; older form, not offered to the model" if schema.get("deprecated") else "optional"


def _type(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "any")
    name = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if "enum" in schema:
        name = " or ".join(f"`{value}`" for value in schema["enum"])
    if "default" in schema:
        name += f", default `{msgspec.json.encode(schema['default']).decode()}`"
    return name
