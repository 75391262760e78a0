"""A model with a fixed list of answers, for tests and demonstrations.

Asked with native tools, it calls them with answers like `{"content": "", "tool_calls": [{"name": …, "arguments": …}]}`.
The request contains the number of recorded answers, so the model has no state and a resumed run continues correctly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents import DocumentError, JsonError, decode_json, read_error, read_raw
from reyn.errors import ScriptExhausted, ScriptInvalid
from reyn.models.protocol import ModelAnswer, ModelRequest, ToolCall, call_id

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.journal.kinds import AnswerForm


_MAX_BYTES = 100_000_000


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
        self._answers = [(_to_json(answer), answer) for answer in answers]

    @classmethod
    def from_file(
        cls, path: Path, name: str, *, answer_form: AnswerForm | None = None, inside: Path | None = None
    ) -> ScriptedModel:
        """Read a JSON Lines file: one answer per line, a JSON object or a JSON string; blank lines are skipped.

        Args:
            path: The file.
            name: The name that the journal records.
            answer_form: The form in which the model is asked.
            inside: The folder that the file is in; no link that leads out of it is followed.

        Raises:
            ScriptInvalid: The file cannot be read, or is not JSON Lines. The message has no content of the file.
        """
        try:
            raw = read_raw(path, path.name, inside=inside, max_bytes=_MAX_BYTES) if inside else path.read_bytes()
            lines = raw.decode("utf-8-sig").split("\n")
        except (DocumentError, OSError, UnicodeDecodeError) as error:
            reason = error.finding.message if isinstance(error, DocumentError) else read_error(error)
            raise ScriptInvalid(f"cannot read the script `{path}`: {reason}") from error
        answers = (_parse(line, path, number) for number, line in enumerate(lines, 1) if line.strip())
        return cls(answers, name, answer_form=answer_form)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the next answer; raise `ScriptExhausted` after the last."""
        if request.answered >= len(self._answers):
            count, number = len(self._answers), request.answered + 1
            answers = "1 answer" if count == 1 else f"{count} answers"
            raise ScriptExhausted(f"the script `{self.name}` has {answers}; the run needs answer {number}")
        text, answer = self._answers[request.answered]
        return to_reply(answer, text, request.answer_form, request.run_id, request.call)


def to_reply(answer: dict[str, Any] | str, text: str | None, form: AnswerForm, run_id: str, call: str) -> ModelAnswer:
    """Return an answer that a person wrote as the reply of a model; in the form `tools` with its tool calls.

    Args:
        answer: The answer.
        text: Its text, if it is known.
        form: The form in which the model was asked.
        run_id: The run.
        call: The model call, which the ids of tool calls derive from.
    """
    calls = answer.get("tool_calls") if isinstance(answer, dict) else None
    if form != "tools" or not isinstance(answer, dict) or not isinstance(calls, list):
        return ModelAnswer(_to_json(answer) if text is None else text)
    tool_calls = tuple(
        ToolCall(
            str(one.get("id") or call_id(run_id, call, number)),
            str(one.get("name", "")),
            _to_json(one.get("arguments", {})),
        )
        for number, one in enumerate((one for one in calls if isinstance(one, dict)), 1)
    )
    return ModelAnswer(str(answer.get("content") or ""), tool_calls=tool_calls)


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
