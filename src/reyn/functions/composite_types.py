"""Schema and decoder of a type that msgspec does not support as a whole, built from its parts.

A union of two dataclasses is such a type, or a dataclass with a field that is a pydantic model.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from reyn.functions.conversion import (
    ConversionError,
    Decode,
    annotated,
    is_model,
    is_pydantic_metadata,
    msgspec_decoder,
    pydantic_parts,
)
from reyn.functions.schemas import Definitions, reference
from reyn.jsonschema import compile_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LISTS = {
    list: list,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    set: set,
    frozenset: frozenset,
}
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_Parts = tuple[dict[str, Any], Decode]


class Builder:
    """Builds schema and decoder of a type that msgspec does not support as a whole."""

    def __init__(self) -> None:
        self.definitions = Definitions()
        self._names: dict[Any, str] = {}
        self._decoders: dict[Any, Decode] = {}

    def build(self, annotation: Any) -> _Parts:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self._annotated(*arguments)
        if origin in (Union, types.UnionType):
            return self._union(arguments)
        if origin in _LISTS and arguments:
            return self._list(_LISTS[origin], arguments[0])
        if origin is tuple and arguments:
            return self._tuple(arguments)
        if origin in _DICTS and len(arguments) == 2:
            return self._dict(*arguments)
        if isinstance(annotation, typing.NewType):
            return self.build(annotation.__supertype__)
        if is_model(annotation):
            schema, decode = pydantic_parts(annotation)
            return self.definitions.take(schema), decode
        if has_fields(origin or annotation):
            return self._class(annotation)
        return self.definitions.take(msgspec.json.schema(annotation)), msgspec_decoder(annotation)

    def _annotated(self, inner: Any, *metadata: Any) -> _Parts:
        if any(is_pydantic_metadata(one) for one in metadata):
            schema, decode = pydantic_parts(annotated(inner, *metadata))
            return self.definitions.take(schema), decode
        schema, decode = self.build(inner)
        for meta in metadata:
            if isinstance(meta, msgspec.Meta):
                schema = schema | _constraints(meta, schema)
        return schema, decode

    def _union(self, members: tuple[Any, ...]) -> _Parts:
        built = [self.build(member) for member in members]

        def decode(data: Any) -> Any:
            errors: list[ConversionError] = []
            for (schema, convert), member in zip(built, members, strict=True):
                document = schema | {"$defs": self.definitions.schemas}
                wrong = compile_schema(document).first_error(data)
                if wrong is not None:
                    errors.append(ConversionError(f"not `{type_name(member)}`: {wrong.message}", wrong.path("$")))
                    continue
                try:
                    return convert(data)
                except ConversionError as error:
                    errors.append(error)
            raise ConversionError("; ".join(f"{one.path}: {one}" for one in errors))

        return {"anyOf": [schema for schema, _ in built]}, decode

    def _list(self, make: Callable[[Any], Any], item: Any) -> _Parts:
        schema, convert = self.build(item)
        unique = {"uniqueItems": True} if make is not list else {}

        def decode(data: Any) -> Any:
            return make(_at(convert, value, f"[{index}]") for index, value in enumerate(_expect(data, list)))

        return {"type": "array", "items": schema, **unique}, decode

    def _tuple(self, members: tuple[Any, ...]) -> _Parts:
        if len(members) == 2 and members[1] is Ellipsis:
            schema, decode_list = self._list(list, members[0])
            return schema, lambda data: tuple(decode_list(data))
        built = [self.build(member) for member in members if member != ()]
        count = len(built)

        def decode(data: Any) -> Any:
            if len(_expect(data, list)) != count:
                raise ConversionError(f"expected {count} items, got {len(data)}")
            pairs = zip(built, data, strict=True)
            return tuple(_at(convert, value, f"[{index}]") for index, ((_, convert), value) in enumerate(pairs))

        schemas = [schema for schema, _ in built]
        return {"type": "array", "prefixItems": schemas, "minItems": count, "maxItems": count, "items": False}, decode

    def _dict(self, key: Any, value: Any) -> _Parts:
        schema, convert = self.build(value)
        convert_key = msgspec_decoder(dict[key, None])  # keys are texts in JSON

        def decode(data: Any) -> Any:
            items = _expect(data, dict).items()
            keys = {name: next(iter(convert_key({name: None}))) for name, _ in items}
            return {keys[name]: _at(convert, item, f".{name}") for name, item in items}

        return {"type": "object", "additionalProperties": schema}, decode

    def _class(self, annotation: Any) -> _Parts:
        """Build a class with fields once; every use of it is a reference, so that it may be recursive."""
        if annotation not in self._names:
            name = self._names[annotation] = self.definitions.reserve(getattr(annotation, "__name__", "object"))
            self.definitions.schemas[name], self._decoders[annotation] = self._fields(annotation)

        def decode(data: Any) -> Any:  # a recursive class has no decoder yet while its fields are built
            return self._decoders[annotation](data)

        return reference(self._names[annotation]), decode

    def _fields(self, annotation: Any) -> _Parts:
        cls = get_origin(annotation) or annotation
        built = {field.json_name: (field, *self.build(field.type)) for field in fields_of(annotation)}
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: schema for name, (_, schema, _) in built.items()},
            "required": [name for name, (field, _, _) in built.items() if field.is_required],
        }
        if description := _description(cls):
            schema["description"] = description
        tag_field, tag = _tag_of(cls)
        if tag_field:
            schema["properties"] = {tag_field: {"const": tag}} | schema["properties"]
            schema["required"] = [tag_field, *schema["required"]]
        is_plain = typing.is_typeddict(cls)

        def decode(data: Any) -> Any:
            values = {}
            for name, item in _expect(data, dict).items():
                if name in built:
                    field, _, convert = built[name]
                    values[field.name] = _at(convert, item, f".{name}")
            for name in schema["required"]:
                if name not in data:
                    raise ConversionError(f"`{name}` is missing")
            try:
                return values if is_plain else cls(**values)
            except (TypeError, ValueError) as error:  # of `__post_init__`
                raise ConversionError(str(error)) from error

        return schema, decode


def _at(convert: Decode, data: Any, step: str) -> Any:
    """Convert a part; an error names the path to it."""
    try:
        return convert(data)
    except ConversionError as error:
        raise ConversionError(str(error), f"${step}{error.path[1:]}") from error


def _expect(data: Any, kind: type) -> Any:
    if not isinstance(data, kind):
        raise ConversionError(f"expected {'an array' if kind is list else 'an object'}, got {type(data).__name__}")
    return data


def _constraints(meta: msgspec.Meta, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of JSON Schema for the constraints of a `Meta`."""
    is_list, is_map = schema.get("type") == "array", schema.get("type") == "object"
    names = {
        "ge": "minimum",
        "gt": "exclusiveMinimum",
        "le": "maximum",
        "lt": "exclusiveMaximum",
        "multiple_of": "multipleOf",
        "pattern": "pattern",
        "description": "description",
        "min_length": "minItems" if is_list else "minProperties" if is_map else "minLength",
        "max_length": "maxItems" if is_list else "maxProperties" if is_map else "maxLength",
    }
    found = {keyword: value for name, keyword in names.items() if (value := getattr(meta, name)) is not None}
    return found | (meta.extra_json_schema or {})


# -- classes with fields --------------------------------------------------------------------------------------


class Field(NamedTuple):
    """A field of a class. `json_name` is its key in JSON."""

    name: str
    type: Any
    is_required: bool
    json_name: str


def has_fields(cls: Any) -> bool:
    if not isinstance(cls, type):
        return False
    is_named_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return (
        dataclasses.is_dataclass(cls) or typing.is_typeddict(cls) or is_named_tuple or issubclass(cls, msgspec.Struct)
    )


def fields_of(annotation: Any) -> Iterator[Field]:
    """Yield the fields of a dataclass, typed dictionary, named tuple or struct."""
    cls = get_origin(annotation) or annotation
    hints = get_type_hints(cls, include_extras=True)
    variables = dict(zip(getattr(cls, "__parameters__", ()), get_args(annotation), strict=False))
    if issubclass(cls, msgspec.Struct):
        for field in msgspec.structs.fields(cls):
            kind = _substituted(hints.get(field.name, field.type), variables)
            yield Field(field.name, kind, field.required, field.encode_name)
    elif typing.is_typeddict(cls):
        for name, hint in hints.items():
            inner = get_args(hint)[0] if get_origin(hint) in (typing.Required, typing.NotRequired) else hint
            yield Field(name, _substituted(inner, variables), name in cls.__required_keys__, name)
    elif dataclasses.is_dataclass(cls):
        for one in dataclasses.fields(cls):
            if one.init:
                has_default = one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING
                yield Field(one.name, _substituted(hints[one.name], variables), not has_default, one.name)
    else:
        for name in cls._fields:
            yield Field(name, hints.get(name, Any), name not in cls._field_defaults, name)


def _substituted(annotation: Any, variables: dict[Any, Any]) -> Any:
    """Return a type with the arguments of a generic class in place of its type variables."""
    if isinstance(annotation, TypeVar):
        return variables.get(annotation, Any)
    parameters = getattr(annotation, "__parameters__", ())
    if not parameters or not variables:
        return annotation
    return annotation[tuple(variables.get(parameter, Any) for parameter in parameters)]


def _tag_of(cls: Any) -> tuple[str | None, Any]:
    """Return the tag field of a tagged struct, and its value."""
    if not issubclass(cls, msgspec.Struct):
        return None, None
    config = cls.__struct_config__
    return (config.tag_field, config.tag) if config.tag is not None else (None, None)


def _description(cls: type) -> str:
    doc = cls.__doc__ or ""
    return "" if doc.startswith(f"{cls.__name__}(") or doc == dict.__doc__ else inspect.cleandoc(doc)


def type_name(annotation: Any) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
