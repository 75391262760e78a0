"""Events, the hash that chains them, and the registry of their kinds: versions, data types, encoding.

A kind is a frozen struct decorated with `@event`. The journal rejects any other. Every released version stays readable:
`@older_event` registers a version that is no longer written. The types of `<kind>_started` and `<kind>_completed` are
created on demand for each op kind.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from reyn.errors import EventInvalid
from reyn.journal.canonical import canonical

GENESIS = "0" * 64
"""`prev` of the first event of a run."""
RULES = 1
"""The version of derived events. After the first release, raise it if the same recorded inputs derive other events. A
run under unsupported rules is `blocked`: it stays readable and can be forked."""
SUPPORTED_RULES = frozenset({1})
WORDING = 1
"""Raise it if only a derived text changes (prompt, correction, reason, op description): recorded turns keep their
texts, and the run continues with the new ones."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event as it is stored. `raw` holds the stored bytes of its data; `ts` is in microseconds since 1970, UTC."""

    seq: int
    run_id: str
    ts: int
    kind: str
    v: int
    raw: bytes
    prev: str
    hash: str

    @property
    def data(self) -> dict[str, Any]:
        """The data as JSON values. Raises `EventInvalid` if the stored bytes are not JSON."""
        try:
            decoded: dict[str, Any] = msgspec.json.decode(self.raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise EventInvalid(f"event {self.seq} `{self.kind}` of run `{self.run_id}`: {error}") from error
        return decoded

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON object of the event."""
        return {
            "seq": self.seq,
            "run_id": self.run_id,
            "ts": self.ts,
            "kind": self.kind,
            "v": self.v,
            "data": self.data,
            "prev": self.prev,
            "hash": self.hash,
        }


def link(seq: int, ts: int, kind: str, v: int, raw: bytes, prev: str) -> str:
    """Return the hash of an event: SHA-256 of the JSON array `[seq, ts, kind, v, data, prev]`, with data as stored."""
    preimage = b'[%d,%d,"%b",%d,%b,"%b"]' % (seq, ts, kind.encode(), v, raw, prev.encode())
    return sha256(preimage).hexdigest()


def chain_events(run_id: str, bodies: Iterable[Body], after: int, prev: str, ts: int) -> list[Event]:
    """Return the events of a run that follow the event with the number `after` and the hash `prev`."""
    events = []
    for seq, body in enumerate(bodies, start=after + 1):
        raw = encode(body)
        hashed = link(seq, ts, body.kind, body.version, raw, prev)
        events.append(Event(seq, run_id, ts, body.kind, body.version, raw, prev, hashed))
        prev = hashed
    return events


Origin = Literal["start", "outcome", "outside", "derived"]
"""The source of an event. `start` opens the run. `outcome` records the result of an effect. `outside` records something
that happens to a run, such as a resume or a cancellation. `derived` follows from the events before it, so a replay
computes it again. All but derived events are inputs and have their own time."""

Status = Literal["running", "finished", "failed", "limited", "waiting", "aborted", "cancelled", "blocked"]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The data of one event kind. Fields may be added with a default; any other change needs a new version.

    Attributes:
        enters: The status of the run after this event; `None` leaves it unchanged.
        base: The class that fold rules are registered for: the class itself, or the shape shared by all op kinds.
    """

    kind: ClassVar[str]
    version: ClassVar[int]
    origin: ClassVar[Origin]
    enters: ClassVar[Status | None]
    base: ClassVar[type[Body]]


B = TypeVar("B", bound=Body)

_TYPES: dict[tuple[str, int], type[Body]] = {}
"""The versions that are written."""
_DECODE: dict[tuple[str, int], Callable[[bytes], Body]] = {}
"""Decodes the data of a version, as the version that is written. Decoders are created on first use."""
_FAMILIES: dict[tuple[str, int], type[Body]] = {}
_OP_TYPES: dict[tuple[type[Body], str], type[Body]] = {}
_FIRST_USE = threading.RLock()
"""Held while a decoder is made. msgspec completes a struct on first use; a second thread that decodes one meanwhile
crashes the process."""
OP_KIND = r"[a-z][a-z0-9_]{0,39}|mcp:[a-z][a-z0-9_-]{0,39}/[A-Za-z0-9_.-]{1,128}"
"""The names of op kinds. Those of MCP tools contain the server."""
_OP_EVENT = re.compile(rf"({OP_KIND})_(started|completed)")


def event(kind: str, *, v: int, origin: Origin, enters: Status | None = None) -> Callable[[type[B]], type[B]]:
    """Register a struct as the data of an event kind."""

    def register(cls: type[B]) -> type[B]:
        assert (kind, v) not in _TYPES, f"{kind} version {v} is registered twice"
        cls.base = cls
        return _define(cls, kind, v, origin, enters)

    return register


def older_event(kind: str, *, v: int) -> Callable[[type[B]], type[B]]:
    """Register a version that is no longer written. Its `upgrade` returns the current version."""

    def register(cls: type[B]) -> type[B]:
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(cls)
        _DECODE[kind, v] = lambda raw: decoder.decode(raw).upgrade()
        return cls

    return register


def family(suffix: str, *, v: int, origin: Origin) -> Callable[[type[B]], type[B]]:
    """Register a struct as the data of `<kind>_<suffix>` for every op kind."""

    def register(cls: type[B]) -> type[B]:
        cls.version, cls.origin, cls.enters, cls.base = v, origin, None, cls
        cls.kind = f"<kind>_{suffix}"
        _FAMILIES[suffix, v] = cls
        return cls

    return register


def op_event(shape: type[B], op_kind: str) -> type[B]:
    """Return the event type of an op kind: `op_event(OpStarted, "file")` is the type of `file_started`."""
    cls: Any = _OP_TYPES.get((shape, op_kind))  # `cast` would be a call
    return cls or _make_op_event(shape, op_kind)


def _make_op_event(shape: type[B], op_kind: str) -> type[B]:
    with _FIRST_USE:
        cls: Any = _OP_TYPES.get((shape, op_kind))
        return cls or _new_op_event(shape, op_kind)


def _new_op_event(shape: type[B], op_kind: str) -> type[B]:
    suffix = shape.kind.removeprefix("<kind>_")
    name = f"{op_kind}_{suffix}"
    cls = msgspec.defstruct(
        "".join(word.title() for word in re.split(r"[^A-Za-z0-9]", name)),
        [],
        bases=(shape,),
        frozen=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
        namespace={"op_kind": op_kind},
    )
    assert issubclass(cls, shape)
    cls.base = shape
    _OP_TYPES[shape, op_kind] = cls
    return _define(cls, name, shape.version, shape.origin, None)


def _define(cls: type[B], kind: str, v: int, origin: Origin, enters: Status | None) -> type[B]:
    cls.kind, cls.version, cls.origin, cls.enters = kind, v, origin, enters
    _TYPES[kind, v] = cls
    return cls


def kinds() -> dict[tuple[str, int], type[Body]]:
    """Return the current version of every kind that does not belong to an op, sorted."""
    return dict(sorted((key, cls) for key, cls in _TYPES.items() if cls.base is cls))


@cache
def fixed_kinds() -> frozenset[str]:
    """Return the event names that no op kind may use. Called only after all of them are registered."""
    return frozenset(kind for kind, _ in kinds())


def families() -> tuple[type[Body], ...]:
    """Return the types that the events of all op kinds share."""
    return tuple(_FAMILIES.values())


def _op_decoder(kind: str, v: int) -> Callable[[bytes], Body] | None:
    match = _OP_EVENT.fullmatch(kind)
    shape = _FAMILIES.get((match[2], v)) if match else None
    if match is None or shape is None or kind in fixed_kinds():
        return None
    return msgspec.json.Decoder(op_event(shape, match[1])).decode


def _new_decoder(kind: str, v: int) -> Callable[[bytes], Body] | None:
    """Return the decoder of a kind, which is then known; `None` if there is no such kind."""
    with _FIRST_USE:
        cls = _TYPES.get((kind, v))
        decoder = msgspec.json.Decoder(cls).decode if cls is not None else _op_decoder(kind, v)
        if decoder is not None:
            _DECODE[kind, v] = decoder
        return decoder


encode: Callable[[Body], bytes] = canonical
"""Return the bytes that are stored and hashed for a body."""


def decode(event: Event) -> Body:
    """Return the data of an event in its current version.

    Raises:
        EventInvalid: The kind or version is unknown, or the data does not match its schema.
    """
    decode_data = _DECODE.get((event.kind, event.v)) or _new_decoder(event.kind, event.v)
    if decode_data is None:
        raise EventInvalid(f"event {event.seq}: this release does not know `{event.kind}` version {event.v}")
    try:
        return decode_data(event.raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EventInvalid(f"event {event.seq} `{event.kind}`: {error}") from error


def decode_all(events: Sequence[Event]) -> list[Body]:
    """Return the data of events, as `decode` does."""
    try:
        return [_DECODE[event.kind, event.v](event.raw) for event in events]
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [decode(event) for event in events]  # it names the event, and creates the decoder of a kind


CONTENT = "content"
"""Marks a field as the hash of a blob: `Meta(extra={CONTENT: True})`."""
TEXT = "text"
"""Marks a field as derived text, whose wording may change between releases: `Meta(extra={TEXT: True})`."""


def content_hashes(value: msgspec.Struct) -> Iterator[str]:
    """Yield the hashes of all blobs that a body refers to."""
    for name, marks in _fields(type(value)):
        field = getattr(value, name)
        for item in field if isinstance(field, tuple) else (field,):
            if CONTENT in marks and item is not None:
                yield item
            elif isinstance(item, msgspec.Struct):
                yield from content_hashes(item)


def without_text(value: Any) -> Any:
    """Return a body without its derived texts, to compare events that different releases wrote."""
    if isinstance(value, tuple):
        return tuple(without_text(item) for item in value)
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {name: None if TEXT in marks else getattr(value, name) for name, marks in _fields(type(value))}
    return type(value), {name: without_text(field) for name, field in fields.items()}


@cache
def _fields(cls: type[msgspec.Struct]) -> tuple[tuple[str, frozenset[str]], ...]:
    shape = msgspec.inspect.type_info(cls)
    assert isinstance(shape, msgspec.inspect.StructType)
    return tuple((field.name, _marks(field.type)) for field in shape.fields)


def _marks(shape: msgspec.inspect.Type) -> frozenset[str]:
    if isinstance(shape, msgspec.inspect.UnionType):
        return frozenset().union(*(_marks(member) for member in shape.types))
    if isinstance(shape, msgspec.inspect.VarTupleType):
        return _marks(shape.item_type)
    return frozenset(shape.extra or ()) if isinstance(shape, msgspec.inspect.Metadata) else frozenset()
