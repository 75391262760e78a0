"""Check configuration values against the types in `values`; report key path, position, expected type and value.

One source (a file, a variable or the flags) is checked at a time, so a required key may come from another source.
`load` checks what depends on all sources together.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from reyn.documents import fields_of, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.documents import Document
    from reyn.errors import Finding

CODE = "RYN701"
_MAX_QUOTED_LENGTH = 40


def check_document(document: Document, shape: type[msgspec.Struct]) -> list[Finding]:
    """Return every error in one configuration source."""
    return list(_check(document, shape, ()))


def key_path(path: tuple[str | int, ...]) -> str:
    """Write a path as users write it: `models.standard.fallback[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def describe_type(kind: Any) -> str:
    """Describe the values that a type accepts, in the words of YAML."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _describe_annotated(args[0], args[1:])
    if origin is Literal:
        return _join_alternatives([f"`{choice}`" for choice in args])
    if origin in (Union, types.UnionType):
        return _join_alternatives([describe_type(part) for part in args])
    if origin is dict:
        return f"a mapping of keys to {describe_type(args[1])}"
    if origin is tuple:
        return f"a list in which each item is {describe_type(args[0])}"
    if kind is type(None):
        return "`null`"
    names = {str: "a string", int: "an integer", float: "a number", bool: "`true` or `false`"}
    return names.get(kind, "a mapping of keys to values")


def _describe_annotated(base: Any, metadata: tuple[Any, ...]) -> str:
    metas = [meta for meta in metadata if isinstance(meta, msgspec.Meta)]
    description = next((meta.description for meta in metas if meta.description), None)
    if description is not None:
        return description
    return " ".join([describe_type(base), *filter(None, map(_describe_bounds, metas))])


def _describe_bounds(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f"from {meta.ge} to {meta.le}"
    if meta.ge is not None:
        return f"of at least {meta.ge}"
    return f"greater than {meta.gt}" if meta.gt is not None else ""


def _join_alternatives(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def _check(document: Document, kind: Any, path: tuple[str | int, ...]) -> Iterator[Finding]:
    value = document.value
    for step in path:
        value = value[step]
    struct = _find_struct(kind)
    if isinstance(value, dict) and struct is not None:
        yield from _check_struct(document, struct, path, value)
    elif isinstance(value, dict) and get_origin(kind) is dict:
        for key in value:
            yield from _check_key(document, get_args(kind)[0], (*path, key))
            yield from _check(document, get_args(kind)[1], (*path, key))
    elif isinstance(value, list) and get_origin(kind) is tuple:
        for index in range(len(value)):
            yield from _check(document, get_args(kind)[0], (*path, index))
    else:
        yield from _check_leaf(document, kind, path, value)


def _check_struct(
    document: Document, struct: type[msgspec.Struct], path: tuple[str | int, ...], value: dict[str, Any]
) -> Iterator[Finding]:
    fields = {field.name: field.type for field in fields_of(struct)}
    for key in value:
        if key in fields:
            yield from _check(document, fields[key], (*path, key))
        else:
            message = f"unknown key `{key_path((*path, key))}`"
            known = f"the keys are {', '.join(f'`{name}`' for name in fields)}"
            yield document.finding(CODE, message, *path, key, fix=nearest(key, fields) or known)


def _check_key(document: Document, kind: Any, path: tuple[str | int, ...]) -> Iterator[Finding]:
    try:
        msgspec.convert(path[-1], kind)
    except msgspec.ValidationError:
        message = f"a key of `{key_path(path[:-1])}` must be {describe_type(kind)}{_quote(kind, path[-1])}"
        yield document.finding(CODE, message, *path)


def _check_leaf(document: Document, kind: Any, path: tuple[str | int, ...], value: Any) -> Iterator[Finding]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        name = f"`{key_path(path)}`" if path else "the configuration"
        message = f"{name} must be {describe_type(kind)}{_quote(kind, value)}"
        yield document.finding(CODE, message, *path)


def _quote(kind: Any, value: Any) -> str:
    """Quote the rejected value, except where a user may have pasted a secret."""
    metas = [meta for part in (kind, *get_args(kind)) for meta in getattr(part, "__metadata__", ())]
    if any(isinstance(meta, msgspec.Meta) and (meta.extra or {}).get("may_be_secret") for meta in metas):
        return ""
    if isinstance(value, dict | list):
        return f", not a {'mapping' if isinstance(value, dict) else 'list'}"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return f", not {text if len(text) <= _MAX_QUOTED_LENGTH else f'{text[:_MAX_QUOTED_LENGTH]}…'}"


def _find_struct(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a mapping of this type is converted to, if any."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if get_origin(kind) in (Annotated, Union, types.UnionType):
        return next(filter(None, map(_find_struct, get_args(kind))), None)
    return None
