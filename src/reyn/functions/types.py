"""Convert between Python types and JSON: the schema of a type, JSON from a value, a typed value from JSON.

msgspec does the work for the types that it supports, pydantic for its own models. Combinations that neither supports,
such as a union of two dataclasses, are built here from their parts. pydantic is imported only if a type uses it.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from reyn.errors import FunctionInvalid
from reyn.functions.schemas import Definitions, reference, tidy
from reyn.jsonschema import SchemaInvalid, compile_schema


class ConversionError(ValueError):
    """A JSON value that cannot become a value of its type. `path` is a JSON path."""

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


Decode = Callable[[Any], Any]


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
            f"{what}: the type `{_shown(annotation)}` has no JSON form: {_reason(error)}",
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
        return _with_lists(msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_other))
    except RecursionError as error:
        raise TypeError("it contains itself, or is nested too deep") from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise TypeError(str(error)) from error


def _with_lists(value: Any) -> Any:
    """Return a JSON value without tuples."""
    if isinstance(value, list | tuple):
        return [_with_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in value.items()}
    return value


def _encode_other(value: Any) -> Any:
    if _is_model(type(value)):
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
            return JsonType(schema, _msgspec_decoder(annotation), needs_check)
    builder = _Builder()
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
        if any(_is_pydantic_metadata(one) for one in metadata):
            found.add("pydantic")
        return found | _features(inner, seen)
    if origin is Literal:
        return found
    if origin is not None and origin is not typing.Generic:
        for argument in get_args(annotation):
            found |= _features(argument, seen) if argument is not Ellipsis else set()
        if not isinstance(origin, type) or not _has_fields(origin):
            return found
        annotation = origin
    if isinstance(annotation, typing.NewType):
        return _features(annotation.__supertype__, seen)
    if not isinstance(annotation, type):
        return found
    if _is_model(annotation) or hasattr(annotation, "__pydantic_core_schema__"):
        return found | {"pydantic", "checked"}
    if issubclass(annotation, msgspec.Struct):
        found.add("struct")
    if hasattr(annotation, "__post_init__"):
        found.add("checked")
    if _has_fields(annotation):
        for field in _fields_of(annotation):
            found |= _features(field.type, seen)
    elif annotation not in _NATIVE and not issubclass(annotation, enum.Enum):
        found.add("checked")  # a date, a UUID: JSON Schema checks only that it is text
    return found


def _is_model(annotation: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def _is_pydantic_metadata(value: Any) -> bool:
    """Whether `Annotated` metadata is for pydantic: its own classes, and the constraints of `annotated_types`."""
    return type(value).__module__.partition(".")[0] in ("pydantic", "annotated_types")


def _described(annotation: Any) -> Any:
    """Return a type whose plain texts in `Annotated` are descriptions: `Annotated[str, "the city"]`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *metadata = arguments
        changed = [msgspec.Meta(description=one) if isinstance(one, str) else one for one in metadata]
        if any(_is_pydantic_metadata(one) for one in metadata) and any(isinstance(one, str) for one in metadata):
            import pydantic

            changed = [pydantic.Field(description=one) if isinstance(one, str) else one for one in metadata]
        return _annotated(_described(inner), *changed)
    return annotation


def _annotated(inner: Any, *metadata: Any) -> Any:
    make: Any = Annotated
    return make[(inner, *metadata)]


# -- msgspec --------------------------------------------------------------------------------------------------


def _msgspec_decoder(annotation: Any) -> Decode:
    def decode(data: Any) -> Any:
        try:
            return msgspec.convert(data, annotation, str_keys=True)
        except msgspec.ValidationError as error:
            whole = _with_whole_numbers(data)
            if whole != data or repr(whole) != repr(data):
                try:
                    return msgspec.convert(whole, annotation, str_keys=True)
                except msgspec.ValidationError:
                    pass
            raise _msgspec_error(error) from error
        except RecursionError as error:
            raise ConversionError("it is nested too deep") from error

    return decode


def _with_whole_numbers(data: Any) -> Any:
    """Return JSON with integers instead of floats such as 1.0: JSON Schema takes them for integers, Python does not."""
    if isinstance(data, float) and data.is_integer():
        return int(data)
    if isinstance(data, list):
        return [_with_whole_numbers(item) for item in data]
    if isinstance(data, dict):
        return {key: _with_whole_numbers(item) for key, item in data.items()}
    return data


def _msgspec_error(error: msgspec.ValidationError) -> ConversionError:
    """Split a message such as "Expected `int`, got `str` - at `$.x`"."""
    message, _, path = str(error).partition(" - at `")
    return ConversionError(message, path.removesuffix("`") or "$")


# -- pydantic -------------------------------------------------------------------------------------------------


def _of_pydantic(annotation: Any) -> JsonType:
    schema, decode = _pydantic_parts(annotation)
    return JsonType(tidy(schema), decode, needs_check=True)


def _pydantic_parts(annotation: Any) -> tuple[dict[str, Any], Decode]:
    import pydantic

    try:
        adapter: Any = pydantic.TypeAdapter(annotation)
        schema = adapter.json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(str(error)) from error

    def decode(data: Any) -> Any:
        try:
            # JSON text, because some types (bytes, tuples) convert from JSON and not from Python values.
            return adapter.validate_json(msgspec.json.encode(data))
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise ConversionError(str(first["msg"]), _json_path(first["loc"])) from error

    return schema, decode


def _json_path(location: tuple[Any, ...]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


# -- built from parts -----------------------------------------------------------------------------------------

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


class _Builder:
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
        if _is_model(annotation):
            schema, decode = _pydantic_parts(annotation)
            return self.definitions.take(schema), decode
        if _has_fields(origin or annotation):
            return self._class(annotation)
        return self.definitions.take(msgspec.json.schema(annotation)), _msgspec_decoder(annotation)

    def _annotated(self, inner: Any, *metadata: Any) -> _Parts:
        if any(_is_pydantic_metadata(one) for one in metadata):
            schema, decode = _pydantic_parts(_annotated(inner, *metadata))
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
                    errors.append(ConversionError(f"not `{_shown(member)}`: {wrong.message}", wrong.path("$")))
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
        convert_key = _msgspec_decoder(dict[key, None])  # keys are texts in JSON

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
        built = {field.json_name: (field, *self.build(field.type)) for field in _fields_of(annotation)}
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


class _Field(NamedTuple):
    """A field of a class. `json_name` is its key in JSON."""

    name: str
    type: Any
    is_required: bool
    json_name: str


def _has_fields(cls: Any) -> bool:
    if not isinstance(cls, type):
        return False
    is_named_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return (
        dataclasses.is_dataclass(cls) or typing.is_typeddict(cls) or is_named_tuple or issubclass(cls, msgspec.Struct)
    )


def _fields_of(annotation: Any) -> Iterator[_Field]:
    """Yield the fields of a dataclass, typed dictionary, named tuple or struct."""
    cls = get_origin(annotation) or annotation
    hints = get_type_hints(cls, include_extras=True)
    variables = dict(zip(getattr(cls, "__parameters__", ()), get_args(annotation), strict=False))
    if issubclass(cls, msgspec.Struct):
        for field in msgspec.structs.fields(cls):
            kind = _substituted(hints.get(field.name, field.type), variables)
            yield _Field(field.name, kind, field.required, field.encode_name)
    elif typing.is_typeddict(cls):
        for name, hint in hints.items():
            inner = get_args(hint)[0] if get_origin(hint) in (typing.Required, typing.NotRequired) else hint
            yield _Field(name, _substituted(inner, variables), name in cls.__required_keys__, name)
    elif dataclasses.is_dataclass(cls):
        for one in dataclasses.fields(cls):
            if one.init:
                has_default = one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING
                yield _Field(one.name, _substituted(hints[one.name], variables), not has_default, one.name)
    else:
        for name in cls._fields:
            yield _Field(name, hints.get(name, Any), name not in cls._field_defaults, name)


def _substituted(annotation: Any, variables: dict[Any, Any]) -> Any:
    """Return a type with the arguments of a generic class in place of its type variables."""
    if isinstance(annotation, TypeVar):
        return variables.get(annotation, Any)
    parameters = getattr(annotation, "__parameters__", ())
    if not parameters or not variables:
        return annotation
    return annotation[tuple(variables.get(one, Any) for one in parameters)]


def _tag_of(cls: Any) -> tuple[str | None, Any]:
    """Return the tag field of a tagged struct, and its value."""
    if not issubclass(cls, msgspec.Struct):
        return None, None
    config = cls.__struct_config__
    return (config.tag_field, config.tag) if config.tag is not None else (None, None)


def _description(cls: type) -> str:
    doc = cls.__doc__ or ""
    return "" if doc.startswith(f"{cls.__name__}(") or doc == dict.__doc__ else inspect.cleandoc(doc)


def _shown(annotation: Any) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
