"""Threads that decode their first events at the same time: that of commits, that of the index, the event loop."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec

from reyn.journal import registry

_PROGRAM = """
import json, sys, threading
from reyn.journal.registry import Event, decode
from reyn.journal.messages import decode_payload
from reyn.errors import EventInvalid

sys.setswitchinterval(1e-6)
lines, barrier = json.loads(sys.stdin.read()), threading.Barrier(4)

def read(order):
    barrier.wait()
    for kind, v, raw in order:
        try:
            decode(Event(1, "r", 1, kind, v, raw.encode(), "", ""))
        except EventInvalid:
            pass

threads = [threading.Thread(target=read, args=(lines[at:] + lines[:at],)) for at in (0, 1, 2, 3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def _example(schema: dict, definitions: dict) -> object:
    """A value of a JSON Schema, with every field."""
    if ref := schema.get("$ref"):
        return _example(definitions[ref.rpartition("/")[2]], definitions)
    if options := schema.get("anyOf"):
        return _example(max(options, key=lambda one: "$ref" in one or one.get("type") != "null"), definitions)
    if "enum" in schema or "const" in schema:
        return schema["enum"][0] if "enum" in schema else schema["const"]
    match schema.get("type"):
        case "object":
            return {name: _example(one, definitions) for name, one in schema.get("properties", {}).items()}
        case "array":
            if "prefixItems" in schema:
                return [_example(one, definitions) for one in schema["prefixItems"]]
            return [_example(schema.get("items") or {}, definitions)]
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "0" * 64


def test_threads_can_decode_their_first_events_at_the_same_time():
    types = list(registry.kinds().values())
    shapes, definitions = msgspec.json.schema_components(types)
    lines = [
        (cls.kind, cls.version, json.dumps(_example(shape, definitions)))
        for cls, shape in zip(types, shapes, strict=True)
    ]
    for _ in range(4):
        child = subprocess.run([sys.executable, "-c", _PROGRAM], input=json.dumps(lines), text=True, check=False)
        assert child.returncode == 0
