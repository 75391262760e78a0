"""A model with a fixed list of answers, for tests and demonstrations.

Asked with native tools, it calls them with answers like `{"content": "", "tool_calls": [{"name": …, "arguments": …}]}`.
The request contains the number of recorded answers, so the model has no state and a resumed run continues correctly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.documents import JsonError, decode_json, read_error
from reyn.errors import ScriptExhausted, ScriptInvalid
from reyn.models.protocol import ModelAnswer, ToolCall, call_id

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reyn.journal.kinds import AnswerForm
    from reyn.models.protocol import ModelRequest


class ScriptedModel:
    """Answers with the items of a list in order: `ScriptedModel([{...}, "raw text"])`. A dict is sent as JSON.

    Args:
        answers: The answers.
        name: The name that the journal records.
        answer_form: The form in which it is asked; `tools` declares native tool calling.
    """

    takes_time = False
    answer_form: AnswerForm = "full"

    def __init__(
        self, answers: Iterable[dict[str, Any] | str], name: str = "scripted", *, answer_form: AnswerForm | None = None
    ) -> None:
        self.name = name
        if answer_form is not None:
            self.answer_form = answer_form
        self._answers = [_to_reply(answer) for answer in answers]

    @classmethod
    def from_file(cls, path: Path, name: str, *, answer_form: AnswerForm | None = None) -> ScriptedModel:
        """Read a JSON Lines file: one answer per line, a JSON object or a JSON string; blank lines are skipped."""
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ScriptInvalid(f"cannot read the script `{path}`: {read_error(error)}") from error
        answers = (_parse(line, path, number) for number, line in enumerate(lines, 1) if line.strip())
        return cls(answers, name, answer_form=answer_form)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the next answer; raise `ScriptExhausted` after the last."""
        if request.answered >= len(self._answers):
            count, number = len(self._answers), request.answered + 1
            answers = "1 answer" if count == 1 else f"{count} answers"
            raise ScriptExhausted(f"the script `{self.name}` has {answers}; the run needs answer {number}")
        reply = self._answers[request.answered]
        if request.answer_form != "tools":
            return ModelAnswer(reply.text)
        calls = (
            call if call.id else msgspec.structs.replace(call, id=call_id(request.run_id, request.call, number))
            for number, call in enumerate(reply.calls, 1)
        )
        return ModelAnswer(reply.content, tool_calls=tuple(calls))


class _Reply(NamedTuple):
    """An answer as text, and as content with tool calls."""

    text: str
    content: str
    calls: tuple[ToolCall, ...]


def _to_reply(answer: dict[str, Any] | str) -> _Reply:
    text = answer if isinstance(answer, str) else _to_json(answer)
    if isinstance(answer, str) or not isinstance(answer.get("tool_calls"), list):
        return _Reply(text, text, ())
    calls = tuple(
        ToolCall(str(call.get("id", "")), str(call.get("name", "")), _to_json(call.get("arguments", {})))
        for call in answer["tool_calls"]
        if isinstance(call, dict)
    )
    return _Reply(text, str(answer.get("content") or ""), calls)


def _to_json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _parse(line: str, path: Path, number: int) -> dict[str, Any] | str:
    try:
        answer = decode_json(line)
    except JsonError as error:
        raise ScriptInvalid(f"{path}:{number}:{max(1, error.column)}: not valid JSON: {error.reason}") from error
    if not isinstance(answer, dict | str):
        raise ScriptInvalid(f"{path}:{number}: an answer must be a JSON object or a JSON string")
    return answer
