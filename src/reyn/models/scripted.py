"""A model with a fixed list of answers, for tests and demonstrations.

The request contains the number of recorded answers, so the model has no state and a resumed run continues correctly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents import read_error
from reyn.errors import ScriptExhausted, ScriptInvalid
from reyn.models.protocol import ModelAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reyn.models.protocol import ModelRequest


class ScriptedModel:
    """Answers with the items of a list in order: `ScriptedModel([{...}, "raw text"])`. A dict is sent as JSON."""

    takes_time = False

    def __init__(self, answers: Iterable[dict[str, Any] | str], name: str = "scripted") -> None:
        self.name = name
        self._answers = [_to_text(answer) for answer in answers]

    @classmethod
    def from_file(cls, path: Path, name: str) -> ScriptedModel:
        """Read a JSON Lines file: one answer per line, a JSON object or a JSON string; blank lines are skipped."""
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ScriptInvalid(f"cannot read the script `{path}`: {read_error(error)}") from error
        return cls((_parse(line, path, number) for number, line in enumerate(lines, 1) if line.strip()), name)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the next answer; raise `ScriptExhausted` after the last."""
        if request.answered >= len(self._answers):
            count, number = len(self._answers), request.answered + 1
            answers = "1 answer" if count == 1 else f"{count} answers"
            raise ScriptExhausted(f"the script `{self.name}` has {answers}; the run needs answer {number}")
        return ModelAnswer(self._answers[request.answered])


def _to_text(answer: dict[str, Any] | str) -> str:
    return answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()


def _parse(line: str, path: Path, number: int) -> dict[str, Any] | str:
    try:
        answer = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ScriptInvalid(f"{path}:{number}: not JSON: {error}") from error
    if not isinstance(answer, dict | str):
        raise ScriptInvalid(f"{path}:{number}: an answer must be a JSON object or a JSON string")
    return answer
