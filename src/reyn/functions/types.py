"""Convert between Python types and JSON: the schema of a type, JSON from a value, a typed value from JSON.

msgspec does the work for the types that it supports, pydantic for its own models. `composite_types` builds the
combinations that neither supports from their parts.
"""

from __future__ import annotations

import enum
import typing
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from reyn.errors import FunctionInvalid
from reyn.functions.composite_types import Builder, fields_of, has_fields, type_name
from reyn.functions.conversion import (
    ConversionError,
    Decode,
    annotated,
    is_model,
    is_pydantic_metadata,
    msgspec_decoder,
    pydantic_parts,
)
from reyn.functions.schemas import tidy
from reyn.jsonschema import SchemaInvalid, compile_schema


class JsonType(NamedTuple):
    """A Python type as JSON.

    Attributes:
        schema: Its JSON Schema.
        decode: Returns the typed value of valid JSON; raises `ConversionError`.
        needs_check: Whether a value can fit the schema and still be invalid, because Python code validates it.
    """

    schema: dict[str, Any]
    decode: Decode
    needs_check: bool

    @property
    def is_object(self) -> bool:
        """Whether every value is a JSON object with known fields."""
        return self.schema.get("type") == "object" and "properties" in self.schema


def json_type(annotation: Any, what: str) -> JsonType:
    """Return the JSON side of a Python type.

    Args:
        annotation: The type.
        what: What has this type, for messages: "parameter `city`".

    Raises:
        FunctionInvalid: The type has no JSON form.
    """
    try:
        found = _build(_described(annotation))
        compile_schema(found.schema)
    except (TypeError, NameError, SchemaInvalid, RecursionError) as error:
        raise FunctionInvalid(
            f"{what}: the type `{type_name(annotation)}` has no JSON form: {_reason(error)}",
            hint="Use plain types, `Literal`, `Enum`, a dataclass, a `TypedDict`, a msgspec or a pydantic model.",
        ) from error
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, NameError):
        return f"{error}; define it at the top level of the module"
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "a class without declared fields" if reason.startswith("Generating JSON schema for custom") else reason


def to_json(value: Any) -> Any:
    """Return a Python value as JSON: dataclasses, structs and models as objects, enumerations by their values.

    Raises:
        TypeError: It has no JSON form.
    """
    try:
        return _as_json(msgspec.to_builtins(value, enc_hook=_encode_other))
    except RecursionError as error:
        raise TypeError("it contains itself, or is nested too deep") from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise TypeError(str(error)) from error


def _as_json(value: Any) -> Any:
    """Return builtin values without tuples, and with texts as keys."""
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        found = {key if type(key) is str else _text_key(key): _as_json(item) for key, item in value.items()}
        if len(found) != len(value):
            texts = [key if isinstance(key, str) else _text_key(key) for key in value]
            twice = next(text for text in texts if texts.count(text) > 1)
            raise TypeError(f"several keys of a dict are {twice!r} in JSON")
        return found
    return value


def _text_key(key: Any) -> str:
    """Return a key of a dict as JSON writes it."""
    [text] = msgspec.to_builtins({key: None}, str_keys=True)
    if not isinstance(text, str):
        raise TypeError(f"a dict has the key {key!r:.100}, which has no JSON form")
    return text


def _encode_other(value: Any) -> Any:
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"a value of type `{type(value).__name__}` has no JSON form")


# -- choosing -------------------------------------------------------------------------------------------------


def _build(annotation: Any) -> JsonType:
    features = _features(annotation, set())
    if "pydantic" in features and "struct" not in features:
        return _of_pydantic(annotation)
    needs_check = bool(features & {"pydantic", "checked"})
    if "pydantic" not in features:
        try:
            schema = tidy(msgspec.json.schema(annotation))
        except TypeError:
            pass  # built from its parts
        else:
            return JsonType(schema, msgspec_decoder(annotation), needs_check)
    builder = Builder()
    schema, decode = builder.build(annotation)
    return JsonType(tidy(schema, builder.definitions.schemas), decode, needs_check)


_NATIVE = (str, int, float, bool, type(None), Any, list, dict, tuple, set, frozenset, object)


def _features(annotation: Any, seen: set[int]) -> set[str]:
    """Return what a type contains: `pydantic`, `struct`, and `checked` if Python code validates its values."""
    if id(annotation) in seen:
        return set()
    seen.add(id(annotation))
    found: set[str] = set()
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        if any(is_pydantic_metadata(meta) for meta in metadata):
            found.add("pydantic")
        return found | _features(inner, seen)
    if origin is Literal:
        return found
    if origin is not None and origin is not typing.Generic:
        for argument in get_args(annotation):
            found |= _features(argument, seen) if argument is not Ellipsis else set()
        if not isinstance(origin, type) or not has_fields(origin):
            return found
        annotation = origin
    if isinstance(annotation, typing.NewType):
        return _features(annotation.__supertype__, seen)
    if not isinstance(annotation, type):
        return found
    if is_model(annotation) or hasattr(annotation, "__pydantic_core_schema__"):
        return found | {"pydantic", "checked"}
    if issubclass(annotation, msgspec.Struct):
        found.add("struct")
    if hasattr(annotation, "__post_init__"):
        found.add("checked")
    if has_fields(annotation):
        for field in fields_of(annotation):
            found |= _features(field.type, seen)
    elif annotation not in _NATIVE and not issubclass(annotation, enum.Enum):
        found.add("checked")  # a date, a UUID: JSON Schema checks only that it is text
    return found


def _described(annotation: Any) -> Any:
    """Return a type whose plain texts in `Annotated` are descriptions: `Annotated[str, "the city"]`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *metadata = arguments
        changed = [msgspec.Meta(description=meta) if isinstance(meta, str) else meta for meta in metadata]
        if any(is_pydantic_metadata(meta) for meta in metadata) and any(isinstance(meta, str) for meta in metadata):
            import pydantic

            changed = [pydantic.Field(description=meta) if isinstance(meta, str) else meta for meta in metadata]
        return annotated(_described(inner), *changed)
    return annotation


def _of_pydantic(annotation: Any) -> JsonType:
    schema, decode = pydantic_parts(annotation)
    return JsonType(tidy(schema), decode, needs_check=True)


__all__ = ["ConversionError", "JsonType", "json_type", "to_json"]
