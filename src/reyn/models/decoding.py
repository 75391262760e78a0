"""Structured output: convert the contract of an answer to a schema for constrained decoding.

The schema accepts a subset of the contract where decoders can express it: bounded strings, `confidence` as an enum (no
grammar supports bounds of numbers), one object per alternative. `to_subset` removes what a provider rejects; its result
may accept more than the contract, or fewer properties. Both are optimizations only, because the OS validates every
answer against the contract itself. Resolving references and merging `allOf` belong to `reyn.jsonschema`.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from reyn.errors import ModelBroken, ModelError, SchemaRejected
from reyn.jsonschema.flattening import flatten
from reyn.jsonschema.growth import Growth, SchemaTooLarge
from reyn.models.narrowing import DEFAULT_LIMITS, DecodingLimits, restrict, steps, unique

SIMPLIFY = "Simplify the artifact's schema, or set the model's `mode` to `free`."
"""The hint for a schema that an engine does not accept."""
MAX_SMALL_OPS = 2
"""Maximum number of ops in one answer of a small model."""


def decoding_schema(
    contract: dict[str, Any], limits: DecodingLimits = DEFAULT_LIMITS, *, is_one_object: bool = False
) -> dict[str, Any]:
    """Return the decoding schema of a contract. The result is cached and must not be modified.

    Args:
        contract: The contract of an answer.
        limits: How much to restrict it.
        is_one_object: Avoid `anyOf` at the root, which some providers reject.

    Raises:
        Inexpressible: The schema would be too large.
    """
    converted = _convert(msgspec.json.encode(contract), limits, is_one_object)
    if isinstance(converted, str):
        raise Inexpressible(converted)
    return converted


@lru_cache(maxsize=64)
def _convert(contract: bytes, limits: DecodingLimits, is_one_object: bool) -> dict[str, Any] | str:
    """Return the decoding schema, or why there is none."""
    growth = Growth(len(contract))
    try:
        schema = _branches(msgspec.json.decode(contract), limits._replace(growth=growth))
        growth.add_tree(schema)
    except SchemaTooLarge as error:
        return str(error)
    except RecursionError:
        return "the schema is nested too deeply"
    return _single_object(schema) if is_one_object else schema


def _branches(contract: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    flat = flatten(contract, unroll=limits.is_small, growth=limits.growth)
    if "anyOf" not in flat or not all("properties" in branch for branch in flat["anyOf"]):
        return restrict(flat, limits)
    allows_abort = limits.allows_abort and not limits.is_small
    branches = [branch for branch in flat["anyOf"] if allows_abort or not _is_abort(branch)]
    schema: dict[str, Any] = {"anyOf": [_branch(branch, limits) for branch in branches]}
    if "$defs" in flat:
        schema["$defs"] = {name: restrict(entry, limits) for name, entry in flat["$defs"].items()}
    return schema


def _is_abort(branch: dict[str, Any]) -> bool:
    """Return whether a branch aborts the run."""
    fields = branch["properties"]
    choice = fields.get("choice") or fields.get("control", {}).get("properties", {}).get("type")
    return bool(choice == {"const": "abort"})


def _single_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Merge the alternatives at the root into one object whose fields have alternatives.

    The schema no longer expresses which fields belong together; the OS checks that.
    """
    branches = schema.get("anyOf")
    if branches is None:
        return schema
    names = list(dict.fromkeys(name for branch in branches for name in branch["properties"]))
    properties = {name: _either([b["properties"][name] for b in branches if name in b["properties"]]) for name in names}
    required = [name for name in names if all(name in branch["required"] for branch in branches)]
    merged = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return merged | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _either(schemas: list[Any]) -> Any:
    different = unique(schemas)
    return different[0] if len(different) == 1 else {"anyOf": different}


def _branch(branch: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    """Restrict one alternative of the contract: a candidate, an abort, or ops only."""
    fields: dict[str, Any] = {}
    for name, field in branch["properties"].items():
        if name == "control":
            fields[name] = _control(field, limits)
        elif name == "reason":
            fields[name] = _reason(limits)
        elif name == "confidence":
            if limits.asks_confidence:
                fields[name] = {"enum": steps(0, 1)}
        elif name in ("control_ir", "ops"):
            if field != {"type": "array", "maxItems": 0}:  # omit a list that must be empty
                fields[name] = _ops(field, limits)
        elif field == {}:
            fields[name] = {"type": "null"}  # the artifact of an abort is ignored
        else:
            fields[name] = restrict(field, limits)
    required = [name for name in fields if name in branch["required"] or fields[name] == {"type": "null"}]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _control(control: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    restricted = restrict(control, limits)
    if "confidence" in restricted.get("properties", {}):
        restricted["properties"]["confidence"] = {"enum": steps(0, 1)}
        restricted["properties"]["reason"]["properties"]["summary"] = _reason(limits)
    return restricted


def _reason(limits: DecodingLimits) -> dict[str, Any]:
    if not limits.reason_length:
        return {"const": ""}
    return restrict({"type": "string", "minLength": 1, "maxLength": limits.reason_length}, limits)


def _ops(ops: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    restricted = restrict(ops, limits._replace(is_op=True))
    if limits.is_small:
        restricted["maxItems"] = max(
            restricted.get("minItems", 0), min(restricted.get("maxItems", MAX_SMALL_OPS), MAX_SMALL_OPS)
        )
    return restricted


# -- the subsets of providers ------------------------------------------------------------------------

_ANNOTATIONS = ("title", "description")


class Subset(NamedTuple):
    """What a provider supports.

    Attributes:
        has_const: Whether `const` is supported, and `enum` for values other than texts and numbers.
        closes_objects: Whether objects must be closed.
        bounds: The supported keywords of each type.
        min_items: The largest supported `minItems`.
        formats: The supported formats of texts.
    """

    has_const: bool
    closes_objects: bool
    bounds: dict[str, tuple[str, ...]]
    formats: frozenset[str]
    min_items: int | None = None


ANTHROPIC = Subset(
    has_const=True,
    closes_objects=True,
    bounds={},
    formats=frozenset(("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")),
    min_items=1,
)
GEMINI = Subset(
    has_const=False,
    closes_objects=False,
    bounds={"array": ("maxItems",), "integer": ("minimum", "maximum"), "number": ("minimum", "maximum")},
    formats=frozenset(("date-time", "date", "time")),
)


class Inexpressible(ValueError):
    """The schema accepts values that the provider cannot be asked for: any JSON value, or an object with any names.

    Also one that is too large when it is written as decoders read it.
    """


def to_subset(schema: Any, subset: Subset) -> dict[str, Any]:
    """Return a schema that has only supported keywords.

    Raises:
        Inexpressible: A part of the schema would have to be removed altogether.
    """
    if not isinstance(schema, dict) or not schema:
        raise Inexpressible("any value is accepted")
    result: dict[str, Any] = {key: schema[key] for key in _ANNOTATIONS if key in schema}
    if "$defs" in schema:
        result["$defs"] = {name: to_subset(one, subset) for name, one in schema["$defs"].items()}
    if "$ref" in schema:
        return result | {"$ref": schema["$ref"]}
    for key in ("const", "enum"):
        if key in schema:
            return result | _literals([schema[key]] if key == "const" else schema[key], subset)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return result | {"anyOf": [to_subset(branch, subset) for branch in branches]}
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = {key: value for key, value in schema.items() if key not in ("type", "$defs", *_ANNOTATIONS)}
        return result | {"anyOf": [to_subset({**rest, "type": one}, subset) for one in kind]}
    return result | _typed(kind, schema, subset)


def _literals(values: list[Any], subset: Subset) -> dict[str, Any]:
    if subset.has_const:
        return {"const": values[0]} if len(values) == 1 else {"enum": values}
    texts = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    branches: list[dict[str, Any]] = [{"type": "string", "enum": texts}] if texts else []
    branches += [{"type": "number", "enum": numbers}] if numbers else []
    branches += [{"type": "boolean"}] if any(isinstance(value, bool) for value in values) else []
    branches += [{"type": "null"}] if None in values else []
    if not branches:
        raise Inexpressible("only lists or objects are accepted")
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def _typed(kind: Any, schema: dict[str, Any], subset: Subset) -> dict[str, Any]:
    bounds = {key: schema[key] for key in subset.bounds.get(str(kind), ()) if key in schema}
    match kind:
        case "object":
            return _subset_object(schema, subset)
        case "array":
            least = schema.get("minItems", 0)
            least = least if subset.min_items is None else min(least, subset.min_items)
            items = {"items": to_subset(schema.get("items"), subset)}
            return {"type": "array"} | items | bounds | ({"minItems": least} if least else {})
        case "string":
            return {"type": "string"} | ({"format": schema["format"]} if schema.get("format") in subset.formats else {})
        case "integer" | "number" | "boolean" | "null":
            return {"type": kind} | bounds
    raise Inexpressible("any value is accepted")


def _subset_object(schema: dict[str, Any], subset: Subset) -> dict[str, Any]:
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    if subset.closes_objects and not properties and more is not False:
        raise Inexpressible("an object with any names is accepted")
    result = {
        "type": "object",
        "properties": {name: to_subset(one, subset) for name, one in properties.items()},
        "required": [name for name in schema.get("required", ()) if name in properties],
    }
    if subset.closes_objects or more is False:
        return result | {"additionalProperties": False}
    return result | ({"additionalProperties": to_subset(more, subset)} if isinstance(more, dict) and more else {})


# -- grammars ---------------------------------------------------------------------------------------


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
        return SchemaRejected(message, hint=SIMPLIFY)
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
