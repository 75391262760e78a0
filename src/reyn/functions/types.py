"""Convert between Python types and JSON: the schema of a type, JSON from a value, a typed value from JSON.

msgspec converts the types that it supports; pydantic converts its own models and the other combinations, such as a
union of two dataclasses. A type belongs to one of them as a whole. A model reads the schemas, so they contain what
constrains or explains a value and nothing else.
"""

from __future__ import annotations

import enum
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, NewType, get_args, get_origin, get_type_hints

import msgspec

from reyn.errors import FunctionInvalid
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.jsonschema.references import map_subschemas

_PLAIN = (str, int, float, bool, type(None), Any, list, dict, tuple, set, frozenset, object)
_META = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "description", "examples")
_PREFIX = "#/$defs/"


class ConversionError(ValueError):
    """A JSON value that cannot become a value of its type. `path` is a JSON path."""

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class JsonType(NamedTuple):
    """A Python type as JSON.

    Attributes:
        schema: Its JSON Schema.
        decode: Returns the typed value of valid JSON; raises `ConversionError`.
        needs_check: Whether a value can fit the schema and still be invalid, because Python code validates it.
    """

    schema: dict[str, Any]
    decode: Callable[[Any], Any]
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
        FunctionInvalid: The type has no JSON form, or needs pydantic, which is not installed.
    """
    try:
        kind = _build(annotation)
        compile_schema(kind.schema)
    except ModuleNotFoundError as error:
        raise FunctionInvalid(
            f"{what}: the type `{_type_name(annotation)}` needs pydantic", hint="pip install 'reyn[functions]'"
        ) from error
    except (TypeError, NameError, SchemaInvalid, RecursionError, UnicodeEncodeError) as error:
        raise FunctionInvalid(
            f"{what}: the type `{_type_name(annotation)}` has no JSON form: {_reason(error)}",
            hint="Use plain types, `Literal`, `Enum`, a dataclass, a `TypedDict`, a msgspec or a pydantic model.",
        ) from error
    return kind


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _reason(error: Exception) -> str:
    if isinstance(error, NameError):
        return f"{error}; define it at the top level of the module"
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "a class without declared fields" if reason.startswith("Unable to generate pydantic-core") else reason


# -- values ---------------------------------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """Return a Python value as JSON: dataclasses, structs and models as objects, enumerations by their values.

    Raises:
        TypeError: It has no JSON form.
    """
    try:
        return _as_json(msgspec.to_builtins(value, enc_hook=_encode_model))
    except RecursionError as error:
        raise TypeError("it contains itself, or is nested too deep") from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise TypeError(str(error)) from error


def _as_json(value: Any) -> Any:
    """Return builtin values without tuples, and with texts as keys."""
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        texts = [key if type(key) is str else _text_key(key) for key in value]
        if len(set(texts)) != len(texts):
            twice = next(text for text in texts if texts.count(text) > 1)
            raise TypeError(f"several keys of a dict are {twice!r} in JSON")
        return {text: _as_json(item) for text, item in zip(texts, value.values(), strict=True)}
    return value


def _text_key(key: Any) -> str:
    """Return a key of a dict as JSON writes it."""
    [text] = msgspec.to_builtins({key: None}, str_keys=True)
    if not isinstance(text, str):
        raise TypeError(f"a dict has the key {key!r:.100}, which has no JSON form")
    return text


def _encode_model(value: Any) -> Any:
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"a value of type `{type(value).__name__}` has no JSON form")


# -- types ----------------------------------------------------------------------------------------------------


def _build(annotation: Any) -> JsonType:
    parts = list(_parts(annotation, {}))
    is_pydantic = any(_is_pydantic(part) for part in parts)
    needs_check = is_pydantic or any(_has_checks(part) for part in parts)
    if not is_pydantic:
        described = _described(annotation, msgspec.Meta)
        try:
            return JsonType(_tidy(msgspec.json.schema(described)), _msgspec_decoder(described), needs_check)
        except TypeError:
            for part in parts:
                if isinstance(part, type) and not get_type_hints(part):
                    msgspec.json.schema(part)  # raises again, unless the combination is the reason
    return _pydantic_type(annotation, needs_check=needs_check)


def _parts(annotation: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """Yield a type, the types of its arguments and fields, and the metadata of `Annotated`."""
    if id(annotation) in seen:
        return
    seen[id(annotation)] = annotation
    yield annotation
    cls = get_origin(annotation) or annotation
    if cls is Literal:
        return
    inner = list(get_args(annotation))
    if isinstance(annotation, NewType):
        inner.append(annotation.__supertype__)
    elif isinstance(cls, type) and not _is_pydantic(cls):
        fields = get_type_hints(cls, include_extras=True).values()
        inner += (cls, *fields) if fields else ()
    for part in inner:
        yield from _parts(part, seen)


def _is_pydantic(part: Any) -> bool:
    """Return whether a type or metadata needs pydantic: a model, a `Field`, a constraint of `annotated_types`."""
    module = (part if isinstance(part, type) else type(part)).__module__
    is_adapted = hasattr(part, "__pydantic_core_schema__") or hasattr(part, "__get_pydantic_core_schema__")
    return is_adapted or module.partition(".")[0] in ("pydantic", "annotated_types")


def _has_checks(part: Any) -> bool:
    """Return whether Python code validates the values of a type: `__post_init__`, or the parser of a date or a UUID."""
    if not isinstance(part, type) or part in _PLAIN or issubclass(part, enum.Enum):
        return False
    return hasattr(part, "__post_init__") or not get_type_hints(part)


def _described(annotation: Any, describe: Callable[..., Any]) -> Any:
    """Return a type whose plain texts in `Annotated` are descriptions: `Annotated[str, "the city"]`.

    Args:
        annotation: The type.
        describe: `msgspec.Meta`, or pydantic's `Field`, which then also takes the place of a `msgspec.Meta`.
    """
    if get_origin(annotation) is not Annotated:
        return annotation
    inner, *metadata = get_args(annotation)
    for index, one in enumerate(metadata):
        if isinstance(one, str):
            metadata[index] = describe(description=one)
        elif isinstance(one, msgspec.Meta) and describe is not msgspec.Meta:
            values = {name: getattr(one, name) for name in _META} | {"json_schema_extra": one.extra_json_schema}
            metadata[index] = describe(**{name: value for name, value in values.items() if value is not None})
    make: Any = Annotated
    return make[(inner, *metadata)]


def _msgspec_decoder(annotation: Any) -> Callable[[Any], Any]:
    def decode(data: Any) -> Any:
        try:
            return msgspec.convert(data, annotation, str_keys=True)
        except msgspec.ValidationError as error:
            whole = _with_whole_numbers(data)
            if repr(whole) != repr(data):
                return decode(whole)
            message, _, path = str(error).partition(" - at `")  # such as "Expected `int`, got `str` - at `$.x`"
            raise ConversionError(message, path.removesuffix("`") or "$") from error
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


def _pydantic_type(annotation: Any, *, needs_check: bool) -> JsonType:
    import pydantic

    described = _described(annotation, pydantic.Field)
    if any(_is_msgspec(part) for part in _parts(described, {})):
        raise TypeError("pydantic converts it, which does not support `msgspec.Struct` and `msgspec.Meta`")
    # A new type has no configuration of its own, so that this one applies to dataclasses: `to_json` writes base64.
    make: Any = NewType
    config = pydantic.ConfigDict(val_json_bytes="base64")
    try:
        adapter: Any = pydantic.TypeAdapter(make("Value", described), config=config)
        schema = adapter.json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(str(error)) from error

    def decode(data: Any) -> Any:
        try:
            # JSON text, because some types (bytes, tuples) convert from JSON and not from Python values.
            return adapter.validate_json(msgspec.json.encode(data))
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            messages = {(_json_path(one["loc"], data), one["msg"]): None for one in found}
            first, *others = {path for path, _ in messages}
            if not others:
                raise ConversionError("; ".join(message for _, message in messages), first) from error
            raise ConversionError("; ".join(f"{path}: {message}" for path, message in messages)) from error
        except TypeError as error:  # of a `__post_init__`
            raise ConversionError(str(error)) from error

    return JsonType(_tidy(schema), decode, needs_check)


def _is_msgspec(part: Any) -> bool:
    return isinstance(part, msgspec.Meta) or (isinstance(part, type) and issubclass(part, msgspec.Struct))


def _json_path(location: tuple[Any, ...], data: Any) -> str:
    """Return the JSON path of an error. pydantic also names the members of unions, which are not part of the data."""
    path = "$"
    for part in location:
        if isinstance(data, dict) and part in data:
            path, data = f"{path}.{part}", data[part]
        elif isinstance(data, list) and isinstance(part, int):
            path, data = f"{path}[{part}]", data[part]
    return path


# -- schemas --------------------------------------------------------------------------------------------------


def join_schemas(schemas: Mapping[str, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return schemas without their definitions, and the definitions of all, each with a name of its own."""
    joined: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for key, schema in schemas.items():
        names: dict[str, str] = {}
        for name in schema.get("$defs", {}):
            number, names[name] = 1, name
            while names[name] in definitions:
                number += 1
                names[name] = f"{name}_{number}"
            definitions[names[name]] = None

        def renamed(part: Any, names: dict[str, str] = names) -> Any:
            part = map_subschemas(part, renamed) if isinstance(part, dict) else part
            return part | {"$ref": _PREFIX + names[name]} if (name := _reference(part)) else part

        definitions |= {names[name]: renamed(part) for name, part in schema.get("$defs", {}).items()}
        joined[key] = renamed({word: part for word, part in schema.items() if word != "$defs"})
    return joined, definitions


def _tidy(schema: dict[str, Any]) -> Any:
    """Return a schema without titles, whose definitions are inlined unless they are recursive or used several times."""
    schema = _without_titles(schema)
    found = schema.pop("$defs", {})
    uses = {name: _references(part) for name, part in found.items()}
    count = Counter(_references(schema)) + Counter(name for names in uses.values() for name in names)
    inlined = {
        name
        for name, part in found.items()
        if not _is_recursive(name, uses) and (count[name] == 1 or ("properties" not in part and not uses[name]))
    }

    def inline(part: Any) -> Any:
        if (name := _reference(part)) in inlined:
            # What stands beside a reference (a description, a default) is more specific than the definition.
            return inline(found[name]) | {key: value for key, value in part.items() if key != "$ref"}
        return map_subschemas(part, inline) if isinstance(part, dict) else part

    result: dict[str, Any] = inline(schema)
    left = {name: inline(part) for name, part in found.items() if name not in inlined and count[name]}
    if len(left) == 1 and (name := _reference(result)) in left and len(result) == 1:
        return {**left[name], "$defs": left}
    return result | ({"$defs": left} if left else {})


def _without_titles(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    # `discriminator` is an OpenAPI keyword whose references would have to follow every renaming.
    bare = {key: value for key, value in schema.items() if key not in ("title", "discriminator")}
    return map_subschemas(bare, _without_titles)


def _reference(part: Any) -> str:
    """Return the name of the definition that a schema refers to; empty without one."""
    return str(part["$ref"]).removeprefix(_PREFIX) if isinstance(part, dict) and "$ref" in part else ""


def _references(schema: Any) -> list[str]:
    """Return the names of all definitions that a schema refers to, once per reference."""
    inner: list[Any] = []
    if isinstance(schema, dict):
        map_subschemas(schema, inner.append)
    own = [name] if (name := _reference(schema)) else []
    return own + [name for part in inner for name in _references(part)]


def _is_recursive(name: str, uses: Mapping[str, list[str]]) -> bool:
    reachable, rest = set[str](), [name]
    while rest:
        new = set(uses.get(rest.pop(), ())) - reachable
        reachable |= new
        rest += new
    return name in reachable


__all__ = ["ConversionError", "JsonType", "join_schemas", "json_type", "to_json"]
