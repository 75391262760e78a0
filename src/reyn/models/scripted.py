"""A model that reads its answers from a list: for tests, demonstrations and the first steps of an author.

It keeps no cursor: the run says how many answers it has recorded, so a resumed run goes on where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ScriptExhausted, ScriptInvalid
from reyn.models.protocol import ModelReply

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reyn.models.protocol import ModelRequest


class ScriptedModel:
    """`ScriptedModel([{...}, "raw text"])`: an object is sent as JSON, a string as it is."""

    takes_time = False

    def __init__(self, answers: Iterable[dict[str, Any] | str], name: str = "scripted") -> None:
        self.name = name
        self._answers = [_to_text(answer) for answer in answers]

    @classmethod
    def from_file(cls, path: Path, name: str) -> ScriptedModel:
        """One answer a line, each a JSON object or a JSON string; blank lines are skipped."""
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ScriptInvalid(f"cannot read the answers `{path}`: {error}") from error
        return cls((_parse(line, path, number) for number, line in enumerate(lines, 1) if line.strip()), name)

    async def complete(self, request: ModelRequest) -> ModelReply:
        if request.answered >= len(self._answers):
            raise ScriptExhausted(
                f"the script `{self.name}` has {len(self._answers)} answers; call {request.call} asks for one more"
            )
        return ModelReply(self._answers[request.answered])


def _to_text(answer: dict[str, Any] | str) -> str:
    return answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()


def _parse(line: str, path: Path, number: int) -> dict[str, Any] | str:
    try:
        answer = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ScriptInvalid(f"{path}:{number}: not JSON: {error}") from error
    if not isinstance(answer, dict | str):
        raise ScriptInvalid(f"{path}:{number}: an answer is a JSON object or a JSON string")
    return answer
