"""Hostile model files: one whose header is damaged is refused with a code, and does not end the process."""

from __future__ import annotations

import os
import random
import struct

from reyn.models.local_engine import Engine
from reyn.models.weights import DEFAULT_WEIGHTS, KNOWN_WEIGHTS, weights_path
from tests.fuzz.harness import Case

HEADER = 1 << 21
"""What is damaged: the counts, the keys, the vocabulary, the list of tensors."""
_NUMBERS = (0, 1, 2, 0x7F, 0xFF, 1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)
_KEYS = (b"general.architecture", b"llama.block_count", b"llama.embedding_length", b"llama.attention.head_count")
_TENSORS = (b"token_embd.weight", b"blk.0.attn_q.weight", b"blk.29.ffn_down.weight", b"output_norm.weight")


def target(case: Case) -> None:
    weights = weights_path(KNOWN_WEIGHTS[DEFAULT_WEIGHTS])
    if not weights.exists():
        case.label("not installed")
        return
    os.environ["XDG_CACHE_HOME"] = str(case.folder)
    content = bytearray(weights.read_bytes())
    damage = case.random.choice((_count, _near, _near, _anywhere, _shorter))
    case.label(damage.__name__)
    damage(case.random, content)
    file = case.folder / "hostile.gguf"
    file.write_bytes(content)
    with case.guarded("load"):
        Engine(file, 1, 512)


def _count(chance: random.Random, content: bytearray) -> None:
    """Damage the version, the number of tensors or the number of keys."""
    struct.pack_into("<Q", content, chance.choice((4, 8, 16)), chance.choice(_NUMBERS))


def _near(chance: random.Random, content: bytearray) -> None:
    """Damage a length, a type, a shape or an offset beside a name."""
    at = content.find(chance.choice((*_KEYS, *_TENSORS)), 0, HEADER)
    for _ in range(chance.randint(1, 3)):
        place = max(24, at + chance.randint(-12, 60))
        width, number = chance.choice((4, 8)), chance.choice(_NUMBERS)
        content[place : place + width] = (number % (1 << 8 * width)).to_bytes(width, "little")


def _anywhere(chance: random.Random, content: bytearray) -> None:
    for _ in range(chance.randint(1, 30)):
        content[chance.randrange(4, HEADER)] = chance.randrange(256)


def _shorter(chance: random.Random, content: bytearray) -> None:
    del content[chance.choice((5, 24, 100, HEADER, len(content) // 2, len(content) - 1)) :]
