"""The registry of event kinds, their versions and their data.

A kind is a frozen struct under `@event`. The journal stores nothing else; every version that was ever released stays
readable. The two events of an op kind have one shape for all kinds, and their types are made on demand.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

import msgspec

from reyn.errors import EventInvalid
from reyn.journal.canonical import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.journal.event import Event

Origin = Literal["start", "outcome", "outside", "derived"]
"""Where an event comes from: `start` opens the run; `outcome` is what an effect returned; `outside` reaches a run
between or during effects (a resume, a cancel, a raised limit); `derived` follows from the events before it, so a replay
computes it again. All but derived events are inputs with a time of their own."""

Status = Literal["running", "finished", "failed", "limited", "waiting", "aborted", "cancelled", "blocked"]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The data of one event kind. Fields may be added with a default; any other change needs a new version."""

    kind: ClassVar[str]
    version: ClassVar[int]
    origin: ClassVar[Origin]
    enters: ClassVar[Status | None]
    """The status of the run after this event; `None` leaves it unchanged."""
    base: ClassVar[type[Body]]
    """The class that rules are registered for: the body's own, or the shape that all op kinds share."""


B = TypeVar("B", bound=Body)

_TYPES: dict[tuple[str, int], type[Body]] = {}
_DECODERS: dict[tuple[str, int], msgspec.json.Decoder[Any]] = {}
_OLDER: set[type[Body]] = set()
_FAMILIES: dict[tuple[str, int], type[Body]] = {}
_OP_TYPES: dict[tuple[type[Body], str], type[Body]] = {}
_OP_EVENT = re.compile(r"([a-z][a-z0-9_]{0,39})_(started|completed)")


def event(kind: str, *, v: int, origin: Origin, enters: Status | None = None) -> Callable[[type[B]], type[B]]:
    """Register a struct as the data of an event kind."""

    def register(cls: type[B]) -> type[B]:
        assert (kind, v) not in _TYPES, f"{kind} version {v} is registered twice"
        cls.base = cls
        return _define(cls, kind, v, origin, enters)

    return register


def older_event(kind: str, *, v: int) -> Callable[[type[B]], type[B]]:
    """Register a version that is no longer written. Its `upgrade` returns today's shape."""

    def register(cls: type[B]) -> type[B]:
        _OLDER.add(cls)
        cls.base = cls
        return _define(cls, kind, v, "outcome", None)

    return register


def family(suffix: str, *, v: int, origin: Origin) -> Callable[[type[B]], type[B]]:
    """Register a struct as the shape of `<kind>_<suffix>` for every op kind."""

    def register(cls: type[B]) -> type[B]:
        cls.version, cls.origin, cls.enters, cls.base = v, origin, None, cls
        cls.kind = f"<kind>_{suffix}"
        _FAMILIES[suffix, v] = cls
        return cls

    return register


def op_event(shape: type[B], op_kind: str) -> type[B]:
    """The event type of an op kind: `op_event(OpStarted, "file")` is the type of `file_started`."""
    made = _OP_TYPES.get((shape, op_kind))
    return cast("type[B]", made) if made is not None else _make_op_event(shape, op_kind)


def _make_op_event(shape: type[B], op_kind: str) -> type[B]:
    suffix = shape.kind.removeprefix("<kind>_")
    name = f"{op_kind}_{suffix}"
    made = msgspec.defstruct(
        "".join(word.title() for word in name.split("_")),
        [],
        bases=(shape,),
        frozen=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
        namespace={"op_kind": op_kind},
    )
    assert issubclass(made, shape)
    made.base = shape
    _OP_TYPES[shape, op_kind] = made
    return _define(made, name, shape.version, shape.origin, None)


def _define(cls: type[B], kind: str, v: int, origin: Origin, enters: Status | None) -> type[B]:
    cls.kind, cls.version, cls.origin, cls.enters = kind, v, origin, enters
    _TYPES[kind, v] = cls
    _DECODERS[kind, v] = msgspec.json.Decoder(cls)
    return cls


def kinds() -> dict[tuple[str, int], type[Body]]:
    """Every kind and version that is written today and is not an op's, sorted."""
    return dict(sorted((key, cls) for key, cls in _TYPES.items() if cls.base is cls and cls not in _OLDER))


@cache
def fixed_kinds() -> frozenset[str]:
    """The names of events that no op kind may take. Called only after all of them are registered."""
    return frozenset(kind for kind, _ in kinds())


def families() -> tuple[type[Body], ...]:
    """The shapes that the events of every op kind have."""
    return tuple(_FAMILIES.values())


def _decoder(kind: str, v: int) -> msgspec.json.Decoder[Any] | None:
    known = _DECODERS.get((kind, v))
    if known is not None:
        return known
    found = _OP_EVENT.fullmatch(kind)
    shape = _FAMILIES.get((found[2], v)) if found else None
    if found is None or shape is None or kind in fixed_kinds():
        return None
    op_event(shape, found[1])
    return _DECODERS[kind, v]


def encode(body: Body) -> bytes:
    """The bytes under which a body is stored."""
    return canonical(body)


def decode(event: Event) -> Body:
    """Return the typed data of an event, in today's shape. An unknown kind or a wrong shape is an error."""
    body: Any = decode_stored(event)
    upgraded: Body = body.upgrade() if event.v == 1 and type(body) in _OLDER else body
    return upgraded


def decode_stored(event: Event) -> Body:
    """Return the typed data of an event in the version that is stored."""
    decoder = _DECODERS.get((event.kind, event.v)) or _decoder(event.kind, event.v)
    if decoder is None:
        raise EventInvalid(f"event {event.seq}: kind `{event.kind}` version {event.v} is unknown to this version")
    try:
        body: Body = decoder.decode(event.raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EventInvalid(f"event {event.seq} `{event.kind}`: {error}") from error
    return body


CONTENT = "content"
"""Marks a field as the hash of content: `Meta(extra={CONTENT: True})`."""
TEXT = "text"
"""Marks a field as derived text, whose wording may change between versions: `Meta(extra={TEXT: True})`."""


def content_of(value: msgspec.Struct) -> Iterator[str]:
    """The hashes of all content that a body refers to."""
    for name, marks in _fields(type(value)):
        held = getattr(value, name)
        for item in held if isinstance(held, tuple) else (held,):
            if CONTENT in marks and item is not None:
                yield item
            elif isinstance(item, msgspec.Struct):
                yield from content_of(item)


def without_text(value: Any) -> Any:
    """A body, or a part of one, with every derived text removed, for comparing events of different wordings."""
    if isinstance(value, tuple):
        return tuple(without_text(item) for item in value)
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {name: None if TEXT in marks else getattr(value, name) for name, marks in _fields(type(value))}
    return type(value), {name: without_text(held) for name, held in fields.items()}


@cache
def _fields(cls: type[msgspec.Struct]) -> tuple[tuple[str, frozenset[str]], ...]:
    shape = msgspec.inspect.type_info(cls)
    assert isinstance(shape, msgspec.inspect.StructType)
    return tuple((field.name, _marks(field.type)) for field in shape.fields)


def _marks(shape: msgspec.inspect.Type) -> frozenset[str]:
    if isinstance(shape, msgspec.inspect.UnionType):
        return frozenset().union(*(_marks(member) for member in shape.types))
    return frozenset(shape.extra or ()) if isinstance(shape, msgspec.inspect.Metadata) else frozenset()
