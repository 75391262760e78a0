"""Which kinds of event exist, in which versions, with which data.

A kind is a frozen struct under `@event(...)`. The journal stores nothing that is not here; every version ever released
stays here, so that every journal ever written stays readable.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import msgspec

from reyn.errors import EventInvalid
from reyn.journal.canonical import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.journal.event import Event

Origin = Literal["start", "outcome", "outside", "derived"]
"""How an event comes about: `start` opens the run; `outcome` is what an effect returned; `outside` reaches a run
between or during effects (a resume, a cancel, a raised limit); `derived` follows from the events before it, so that
replay can compute it again. All but the last are inputs: they bring a time of their own."""

Status = Literal["running", "finished", "failed", "limited", "waiting", "aborted", "cancelled", "blocked"]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The data of one kind of event. Fields may be added with a default; anything else is a new version."""

    kind: ClassVar[str]
    version: ClassVar[int]
    origin: ClassVar[Origin]
    enters: ClassVar[Status | None]
    """The state that a run is in after this event; `None` leaves it as it was."""


B = TypeVar("B", bound=Body)

_TYPES: dict[tuple[str, int], type[Body]] = {}
_DECODERS: dict[tuple[str, int], msgspec.json.Decoder[Any]] = {}


def event(kind: str, *, v: int, origin: Origin, enters: Status | None = None) -> Callable[[type[B]], type[B]]:
    """Register a struct as the data of a kind."""

    def register(cls: type[B]) -> type[B]:
        assert (kind, v) not in _TYPES, f"{kind} version {v} is registered twice"
        cls.kind, cls.version, cls.origin, cls.enters = kind, v, origin, enters
        _TYPES[kind, v] = cls
        _DECODERS[kind, v] = msgspec.json.Decoder(cls)
        return cls

    return register


def kinds() -> dict[tuple[str, int], type[Body]]:
    """Every registered kind and version, sorted."""
    return dict(sorted(_TYPES.items()))


def encode(body: Body) -> bytes:
    """The bytes under which a body is stored."""
    return canonical(body)


def decode(event: Event) -> Body:
    """The typed data of an event; an unknown kind or a wrong shape is an error, never a guess."""
    decoder = _DECODERS.get((event.kind, event.v))
    if decoder is None:
        raise EventInvalid(f"event {event.seq}: kind `{event.kind}` version {event.v} is not known here")
    try:
        body: Body = decoder.decode(event.raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EventInvalid(f"event {event.seq} `{event.kind}`: {error}") from error
    return body


CONTENT = "content"
"""Marks a field as the name of content: `Meta(extra={CONTENT: True})`."""


def content_of(value: msgspec.Struct) -> Iterator[str]:
    """The names of all the content that a body refers to."""
    for name, is_content in _fields(type(value)):
        held = getattr(value, name)
        for item in held if isinstance(held, tuple) else (held,):
            if is_content and item is not None:
                yield item
            elif isinstance(item, msgspec.Struct):
                yield from content_of(item)


@cache
def _fields(cls: type[msgspec.Struct]) -> tuple[tuple[str, bool], ...]:
    shape = msgspec.inspect.type_info(cls)
    assert isinstance(shape, msgspec.inspect.StructType)
    return tuple((field.name, _is_content(field.type)) for field in shape.fields)


def _is_content(shape: msgspec.inspect.Type) -> bool:
    if isinstance(shape, msgspec.inspect.UnionType):
        return any(_is_content(member) for member in shape.types)
    return isinstance(shape, msgspec.inspect.Metadata) and CONTENT in (shape.extra or {})
