"""Grammars of llama.cpp for the schema of an answer, whole or begun.

An answer whose choice is made begins with what is certain: the choice, or the op with its kind and form. The model
continues it, and writes what is left. Only llguidance can describe a part of a JSON object.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from reyn.errors import ModelBroken, ModelError, SchemaRejected

_LLGUIDANCE = "%llguidance"
_SEPARATORS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class BegunAnswer(NamedTuple):
    """The beginning of an answer, and the grammar of the rest. The blank after it belongs to the next token."""

    text: str
    grammar: str


def answer_grammar(schema: dict[str, Any]) -> str:
    """Return the grammar of a schema. It allows no white space but one blank after `:` and `,`.

    Models write these blanks as part of the next token, so that they cost nothing; other white space costs tokens.
    """
    import xllamacpp  # type: ignore[import-untyped]  # it has no type hints

    try:
        grammar: str = xllamacpp.json_schema_to_grammar(schema)
    except Exception as error:
        raise engine_error(f"no grammar for the schema of the answer: {error}") from error
    if not grammar.startswith(_LLGUIDANCE):
        return re.sub(r"(?m)^space ::= .*$", 'space ::= " "?', grammar)
    return f"{_LLGUIDANCE} {{}}\nstart: %json {json.dumps(schema | {'x-guidance': _SEPARATORS})}\n"


def engine_error(message: str) -> ModelError:
    """Classify an error of llama.cpp: a schema that it cannot convert to a grammar is known only by the message."""
    if "schema" in message.lower() or "grammar" in message.lower():
        return SchemaRejected(message, hint="Simplify the artifact's schema, or set the model's `mode` to `free`.")
    return ModelBroken(message, hint="Check the model file and its settings, then try again.")


def begin_answer(schema: dict[str, Any], grammar: str) -> BegunAnswer | None:
    """Begin an answer with all that its schema fixes; `None` if several answers differ before anything is left.

    Args:
        schema: The schema of an answer whose choice is made.
        grammar: The grammar of the whole answer.
    """
    branches = schema.get("anyOf", ())
    if len(branches) != 1 or not grammar.startswith(_LLGUIDANCE):
        return None
    shared = {"x-guidance": _SEPARATORS} | ({"$defs": schema["$defs"]} if "$defs" in schema else {})
    return _begin(branches[0], "", "", shared)


def _begin(branch: dict[str, Any], before: str, after: str, shared: dict[str, Any]) -> BegunAnswer | None:
    """Begin an object that follows some text, and is followed by another."""
    fields = list(branch.get("properties", {}).items())
    text, position = before + "{", 0
    while position < len(fields) and "const" in fields[position][1]:
        name, field = fields[position]
        text += f"{json.dumps(name)}: {json.dumps(field['const'], ensure_ascii=False)}, "
        position += 1
    if position == len(fields):
        return None
    name, field = fields[position]
    if name not in branch["required"]:
        return None
    text += f"{json.dumps(name)}:"
    if name == "ops":
        calls = field["items"].get("anyOf", [field["items"]])
        one = len(calls) == 1 and field.get("minItems") == field.get("maxItems") == 1
        rest = fields[position + 1 :]
        return _begin(calls[0], f"{text} [", "]}" + after, shared) if one and not rest else None
    rules = [f"field0: %json {json.dumps(field | shared)}"]
    parts = ['" " field0']
    for number, (other, schema) in enumerate(fields[position + 1 :], start=1):
        part = f"{json.dumps(f', {json.dumps(other)}: ')} field{number}"
        parts.append(part if other in branch["required"] else f"({part})?")
        rules.append(f"field{number}: %json {json.dumps(schema | shared)}")
    start = f"start: {' '.join(parts)} {json.dumps('}' + after)}"
    return BegunAnswer(text, "\n".join((f"{_LLGUIDANCE} {{}}", start, *rules, "")))
