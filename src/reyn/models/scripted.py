"""A model with a fixed list of answers, for tests and demonstrations.

Asked with native tools, it calls them with answers like `{"content": "", "tool_calls": [{"name": …, "arguments": …}]}`.
The request contains the number of recorded answers, so the model has no state and a resumed run continues correctly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from reyn.documents import DocumentError, JsonError, decode_json, read_error, read_raw
from reyn.errors import ScriptExhausted, ScriptInvalid
from reyn.models.answers import WrittenAnswer, answer_text, to_answer, to_reply

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.journal.kinds import AnswerForm
    from reyn.models.protocol import ModelAnswer, ModelRequest


_MAX_BYTES = 100_000_000


class ScriptedModel:
    """Answers with the items of a list in order: `ScriptedModel([finish("done"), {...}, "raw text"])`.

    An answer of `reyn.testing` is completed with what the request says. Any other dict is sent as JSON, and a text as
    it is, so that a test can also send answers that Reyn rejects.

    Each run starts over with the first answer, and its sub-runs go on where it is: `starts_over=True`. A run that is
    resumed continues, also in another process. With `starts_over=False`, a new run goes on with the next answer of the
    list; the object counts them, so all runs have to be in its process.

    Args:
        answers: The answers.
        name: The name that the journal records.
        answer_form: The form in which it is asked; `tools` declares native tool calling.
        starts_over: Whether each run starts with the first answer.

    Raises:
        ScriptInvalid: An answer is no dict and no text, or has no JSON form.
    """

    takes_time = False
    answer_form: AnswerForm = "full"

    def __init__(
        self,
        answers: Iterable[dict[str, Any] | str],
        name: str = "scripted",
        *,
        answer_form: AnswerForm | None = None,
        starts_over: bool = True,
    ) -> None:
        self.name = name
        if answer_form is not None:
            self.answer_form = answer_form
        self._starts_over = starts_over
        self._numbers: dict[tuple[str, str], int] = {}
        """The answer of each call, if a new run goes on with the next one."""
        self._answers = [(_checked(answer, number), answer) for number, answer in enumerate(_listed(answers), 1)]

    def __repr__(self) -> str:
        count = "1 answer" if len(self._answers) == 1 else f"{len(self._answers)} answers"
        return f"<ScriptedModel {self.name}: {count}; a new run {'starts over' if self._starts_over else 'goes on'}>"

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
        number = request.answered
        if not self._starts_over:
            number = self._numbers.setdefault((request.run_id, request.call), len(self._numbers))
        if number >= len(self._answers):
            count = len(self._answers)
            answers = "1 answer" if count == 1 else f"{count} answers"
            needs = f"the run needs answer {number + 1}" if self._starts_over else f"call {number + 1} needs another"
            raise ScriptExhausted(f"the script `{self.name}` has {answers}; {needs}")
        text, answer = self._answers[number]
        if text is None:
            return to_answer(answer, request)
        return to_reply(answer, text, request.answer_form, request.run_id, request.call)


def _listed(answers: object) -> list[Any]:
    if isinstance(answers, str | bytes | dict) or not isinstance(answers, Iterable):
        raise ScriptInvalid(f"the answers are a {type(answers).__name__}", hint="Pass a list: `ScriptedModel([…])`.")
    return list(answers)


def _checked(answer: object, number: int) -> str | None:
    """Return the text of an answer; `None` if a request completes it."""
    if isinstance(answer, WrittenAnswer):
        return None
    if not isinstance(answer, dict | str):
        message = f"answer {number} is a {type(answer).__name__}, which is no answer"
        raise ScriptInvalid(message, hint="Use `finish`, `goto`, `act` or `reply` of `reyn.testing`, a dict or a text.")
    try:
        return answer_text(answer)
    except (TypeError, ValueError, RecursionError) as error:
        raise ScriptInvalid(f"answer {number} has no JSON form: {error}", hint="Use JSON values only.") from error


def _parse(line: str, path: Path, number: int) -> dict[str, Any] | str:
    try:
        answer = decode_json(line)
    except JsonError as error:
        raise ScriptInvalid(f"{path}:{number}:{max(1, error.column)}: not valid JSON: {error.reason}") from error
    if not isinstance(answer, dict | str):
        raise ScriptInvalid(f"{path}:{number}: an answer must be a JSON object or a JSON string")
    return answer
