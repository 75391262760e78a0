"""Typed values from JSON: the decoders of msgspec and pydantic, with one kind of error.

pydantic is imported only if a type uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import msgspec


class ConversionError(ValueError):
    """A JSON value that cannot become a value of its type. `path` is a JSON path."""

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


Decode = Callable[[Any], Any]
"""Returns the typed value of valid JSON; raises `ConversionError`."""


def is_model(annotation: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def is_pydantic_metadata(value: Any) -> bool:
    """Whether `Annotated` metadata is for pydantic: its own classes, and the constraints of `annotated_types`."""
    return type(value).__module__.partition(".")[0] in ("pydantic", "annotated_types")


def annotated(inner: Any, *metadata: Any) -> Any:
    make: Any = Annotated
    return make[(inner, *metadata)]


# -- msgspec --------------------------------------------------------------------------------------------------


def msgspec_decoder(annotation: Any) -> Decode:
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


def pydantic_parts(annotation: Any) -> tuple[dict[str, Any], Decode]:
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
