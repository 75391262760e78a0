"""Check the values of a document against a struct: unknown and missing keys, wrong types, values out of range.

Every finding has the position of the value and names the key, the accepted values and the value itself. Skills, agents
and the configuration are checked by the same rules, under their own codes.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from reyn.documents.trust_classes import classes_of
from reyn.texts import truncated

if TYPE_CHECKING:
    from reyn.documents.document import Document, KeyPath
    from reyn.errors import Finding

_MAX_QUOTED_LENGTH = 40
_MAX_SUGGESTIONS = 100
_MAX_TYPOS = 20
"""Unknown keys that are compared with a missing one: a misspelt key is one finding."""
_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "`true` or `false`", type(None): "`null`"}


class Codes(NamedTuple):
    """The codes of findings.

    Attributes:
        unknown: An unknown key.
        wrong: A value of the wrong type or out of range.
        missing: A missing required key; if empty, no key is required.
    """

    unknown: str
    wrong: str
    missing: str = ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean `…`?`` with the closest known word, or an empty string."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return _did_you_mean(close[0]) if close else ""


def nearest_or_all(word: str, known: Iterable[str]) -> str:
    """Return `nearest`, else the known words, of which there are few."""
    known = sorted(known)
    return nearest(word, known) or f"use one of {', '.join(f'`{one}`' for one in known)}"


def nearest_key(word: str, known: Iterable[str]) -> str:
    """Return `nearest`, else a known key that is a whole part of the word, as `input` is of `input_schema`."""
    known = list(known)
    parts = [key for key in known if {*key.split("_")} <= {*word.replace("-", "_").split("_")}]
    return nearest(word, known) or (_did_you_mean(max(parts, key=len)) if parts else "")


def _did_you_mean(word: str) -> str:
    return f"did you mean `{word}`?"


def nearest_hint(word: str, known: Iterable[str]) -> str:
    """Return `nearest` as a sentence, for the hint of an error. The fix of a finding continues its message instead."""
    return as_hint(nearest(word, known))


def as_hint(fix: str) -> str:
    """Return the fix of a finding as a sentence."""
    return f"{fix[:1].upper()}{fix[1:]}{'' if not fix or fix.endswith('?') else '.'}"


def key_path(path: KeyPath) -> str:
    """Write a path as users write it: `models.standard.fallback[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


@cache
def fields_of(shape: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a struct. msgspec evaluates the annotations anew with every call, which takes long.

    Raises:
        TypeError: A field has no trust class, or there is one for no field.
    """
    fields = msgspec.structs.fields(shape)
    if differing := {field.encode_name for field in fields} ^ classes_of(shape).keys():
        raise TypeError(f"`{shape.__name__}.TRUST` has no class, or one for no field: {', '.join(sorted(differing))}")
    return fields


def check_keys(
    document: Document,
    shape: type[msgspec.Struct],
    codes: Codes,
    *,
    ignore: Iterable[str] = (),
    foreign: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Check a mapping, and everything in it, against a struct.

    Args:
        document: The mapping.
        shape: The struct whose fields are the known keys.
        codes: The codes of the findings.
        ignore: Keys that are not checked.
        foreign: Keys that other programs have, with the fix for each.
    """
    if not isinstance(document.value, dict):
        return [document.finding(codes.wrong, "expected a mapping of keys to values")]
    return list(_Checker(document, codes, foreign or {}).check_struct(shape, (), document.value, frozenset(ignore)))


def usable_keys(document: Document, shape: type[msgspec.Struct]) -> dict[str, Any] | None:
    """Return the valid keys of a mapping, by the field of each; `None` if a required one is missing or invalid.

    Of a mapping in it that is not valid, the parts that are valid remain.
    """
    if not isinstance(document.value, dict):
        return None
    usable = {}
    for field in fields_of(shape):
        try:
            usable[field.name] = _usable(field.type, document.value[field.encode_name])
        except (KeyError, msgspec.ValidationError):
            if field.required:
                return None
    return usable


def _usable(kind: Any, value: Any) -> Any:
    """Convert a value, without the entries of mappings and the optional keys that are not valid.

    Raises:
        msgspec.ValidationError: Nothing of it is usable.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if not isinstance(value, dict):
            raise
        if (shape := _struct(kind)) is not None:
            return shape(**_parts({one.encode_name: (one.name, one.type) for one in fields_of(shape)}, value, shape))
        if (mapping := _container(kind, dict)) is None:
            raise
        return _parts({key: (key, mapping[1]) for key in value if _problem(mapping[0], key) is None}, value)


def _parts(
    kinds: dict[str, tuple[str, Any]], value: dict[str, Any], shape: type[msgspec.Struct] | None = None
) -> dict[str, Any]:
    """Return the usable values of a mapping by their names, given the name and the type of each key."""
    found = {}
    required = {one.encode_name for one in fields_of(shape) if one.required} if shape is not None else set()
    for key, (name, kind) in kinds.items():
        if key in value or key in required:
            try:
                found[name] = _usable(kind, value.get(key, ...))
            except msgspec.ValidationError:
                if key in required:
                    raise
    return found


class _Checker:
    """Checks the values of one document."""

    def __init__(self, document: Document, codes: Codes, foreign: Mapping[str, str]) -> None:
        self._document = document
        self._foreign = foreign
        self._codes = codes
        self._suggestions = 0
        self._top_level: Collection[str] = ()

    def check_struct(
        self, shape: type[msgspec.Struct], path: KeyPath, value: dict[str, Any], ignore: frozenset[str] = frozenset()
    ) -> Iterator[Finding]:
        fields = {field.encode_name: field for field in fields_of(shape)}
        self._top_level = self._top_level if path else fields
        required = [name for name, field in fields.items() if field.required and name not in value]
        unknown = [str(key) for key in value if key not in fields and key not in ignore] if required else []
        misspelt = {nearest_key(key, fields) for key in unknown[:_MAX_TYPOS]}
        for name in required:
            if self._codes.missing and _did_you_mean(name) not in misspelt:
                message = f"missing key `{key_path((*path, name))}`"
                yield self._document.finding(self._codes.missing, message, *path, fix=f"add `{name}:`")
        for key in value:
            if key in ignore:
                continue
            if key in fields:
                yield from self._check(fields[key].type, (*path, key), value[key])
            else:
                message = f"unknown key `{key_path((*path, key))}`"
                fix = ("" if path else self._foreign.get(key)) or self._suggest(key, fields)
                if path and key in self._top_level:
                    fix = f"`{key}` is a key of the top level; move it out of `{key_path(path)}`"
                yield self._document.finding(self._codes.unknown, message, *path, key, fix=fix)

    def _check(self, kind: Any, path: KeyPath, value: Any) -> Iterator[Finding]:
        """Check a value; report the parts of a mapping or a list that are wrong, each at its own position."""
        problem = _problem(kind, value)
        if problem is None:
            return
        findings = list(self._check_parts(kind, path, value))
        if findings:
            yield from findings
        elif problem.reason and self._codes.missing:
            yield self._document.finding(self._codes.wrong, f"`{key_path(path)}`: {problem.reason}", *path)
        elif self._codes.missing or not _has_parts(kind, value):
            # Otherwise a mapping only lacks a key, which another source of the configuration may set.
            message = f"`{key_path(path)}` must be {describe_type(kind)}{_quote(kind, value)}"
            yield self._document.finding(self._codes.wrong, message, *path, fix=_near_choice(kind, value))

    def _check_parts(self, kind: Any, path: KeyPath, value: Any) -> Iterator[Finding]:
        if isinstance(value, dict):
            if (shape := _struct(kind)) is not None:
                yield from self.check_struct(shape, path, value)
            elif (mapping := _container(kind, dict)) is not None:
                for key in value:
                    yield from self._check_key(mapping[0], (*path, key))
                    yield from self._check(mapping[1], (*path, key), value[key])
        elif isinstance(value, list) and (items := _container(kind, tuple)) is not None:
            for index, item in enumerate(value):
                yield from self._check(items[0], (*path, index), item)

    def _check_key(self, kind: Any, path: KeyPath) -> Iterator[Finding]:
        if _problem(kind, path[-1]) is not None:
            message = f"a key of `{key_path(path[:-1])}` must be {describe_type(kind)}{_quote(kind, path[-1])}"
            yield self._document.finding(self._codes.wrong, message, *path)

    def _suggest(self, key: str, known: Iterable[str]) -> str:
        """Return the closest known key, or all. A file of nonsense has thousands of unknown keys: limit the search."""
        self._suggestions += 1
        if self._suggestions > _MAX_SUGGESTIONS:
            return ""
        return nearest_key(key, known) or f"the keys are {', '.join(f'`{name}`' for name in known)}"


class _Problem(NamedTuple):
    """A value does not have its type. `reason` is the message of a struct that checks its own fields; else empty."""

    reason: str


def _problem(kind: Any, value: Any) -> _Problem | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        # msgspec wraps what `__post_init__` raises, and adds the path.
        own = str(error).partition(" - at `")[0] if isinstance(error.__cause__, ValueError | TypeError) else ""
        return _Problem(own)
    return None


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
        return "a mapping of keys to values" if args[1] is Any else f"a mapping of keys to {describe_type(args[1])}"
    if origin is tuple:
        if args[0] in (Any, str):
            return "a list" if args[0] is Any else "a list of strings"
        return f"a list in which each item is {describe_type(args[0])}"
    return _NAMES.get(kind, "a mapping of keys to values")


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
    if meta.gt is not None:
        return f"greater than {meta.gt}"
    if meta.pattern is not None:
        return f"that matches `{meta.pattern}`"
    bounds = ["is not empty"] if meta.min_length == 1 else []
    bounds += [f"has at most {meta.max_length} characters or items"] if meta.max_length is not None else []
    return f"that {' and '.join(bounds)}" if bounds else ""


def _join_alternatives(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def _quote(kind: Any, value: Any) -> str:
    """Quote the rejected value, except where a user may have pasted a secret."""
    metas = [meta for part in (kind, *get_args(kind)) for meta in getattr(part, "__metadata__", ())]
    if any(isinstance(meta, msgspec.Meta) and (meta.extra or {}).get("may_be_secret") for meta in metas):
        return ""
    if isinstance(value, dict | list):
        return f", not {'a' if value else 'an empty'} {'mapping' if isinstance(value, dict) else 'list'}"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return f", not {truncated(text, _MAX_QUOTED_LENGTH)}"


def _near_choice(kind: Any, value: Any) -> str:
    """Return the closest of the words that a type accepts, as a fix."""
    return (
        nearest(value, filter(lambda choice: isinstance(choice, str), _choices(kind))) if isinstance(value, str) else ""
    )


def _choices(kind: Any) -> Iterator[Any]:
    if get_origin(kind) is Literal:
        yield from get_args(kind)
    elif get_origin(kind) in (Annotated, Union, types.UnionType):
        for part in get_args(kind):
            yield from _choices(part)


def _alternatives(kind: Any) -> Iterator[Any]:
    """Yield the members of a union, without their metadata; of another type, the type."""
    if get_origin(kind) is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif get_origin(kind) in (Union, types.UnionType):
        for part in get_args(kind):
            yield from _alternatives(part)
    else:
        yield kind


def _struct(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a mapping of this type is converted to, if any."""
    alternatives = (part for part in _alternatives(kind) if isinstance(part, type) and issubclass(part, msgspec.Struct))
    return next(alternatives, None)


def _has_parts(kind: Any, value: Any) -> bool:
    """Return whether a value is a mapping or a list whose parts have types of their own."""
    if isinstance(value, dict):
        return _struct(kind) is not None or _container(kind, dict) is not None
    return isinstance(value, list) and _container(kind, tuple) is not None


def _container(kind: Any, origin: type) -> tuple[Any, ...] | None:
    """Return the type arguments of the `dict` or `tuple` that a type accepts, if any."""
    return next((get_args(part) for part in _alternatives(kind) if get_origin(part) is origin), None)
