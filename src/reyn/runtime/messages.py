"""The messages of a runtime to its runs: answers, cancellations, aborted turns, changes of a conversation's memory.

They reach a run through its inbox, whether this process, another one or none executes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from reyn.errors import MutationInvalid, RunNotResumable
from reyn.journal import ENDED, AbortTurn, Cancel, ChangeMemory
from reyn.kernel.conversations import memory_error, memory_of
from reyn.runs.family import descendants
from reyn.runs.importing import check_not_imported
from reyn.runs.questions import post_reply
from reyn.runtime.base import RuntimeBase

if TYPE_CHECKING:
    from reyn.runs.questions import PostedReply


class RunMessages(RuntimeBase):
    """Messages to runs."""

    def answer(self, run: str, wait: str, value: Any, *, is_text: bool = False, by: str = "") -> PostedReply:
        """Post a reply to an open question of a run or of its descendants.

        If a process executes the run, it continues with the reply. `resume_answered` resumes the run otherwise.

        Args:
            run: The run that asks, or an ancestor of it.
            wait: The id of the question.
            value: The reply, a JSON value.
            is_text: Whether `value` is text as a user typed it: taken as text if the question takes text, else as JSON.
            by: The name of the user who replies; it is recorded.

        Raises:
            QuestionUnknown: The question is not open, has a reply already, or has expired.
            ReplyInvalid: The reply does not match the schema of the question.
        """
        row = self._project.reader.find(run)
        check_not_imported(row, "answered")
        value = self._project.scrub(value)
        posted = post_reply(
            self._project.journal, row, wait, value, now=self._project.clock.now(), is_text=is_text, by=by
        )
        self._executor.polling.notify(posted.run_id)
        return posted

    def cancel(self, run: str, reason: str = "") -> None:
        """End a run and its descendants. A process that executes the run stops before the run's next effect."""
        row = self._project.reader.find(run)
        check_not_imported(row, "cancelled: it is never executed here")
        if row.status in ENDED:
            raise RunNotResumable(f"run `{row.run_id}` is already {row.status}", hint="There is nothing to cancel.")
        family = [
            run.run_id for run in (row, *descendants(self._project.journal, row.run_id)) if run.status not in ENDED
        ]
        for name in family:
            self._project.journal.post(name, Cancel(reason))
            self._executor.polling.notify(name)  # a driver in this process reads it before its next effect
        for name in family:
            self._executor.take_messages(name)

    def abort_turn(self, run: str, reason: str = "", *, partial: str = "") -> None:
        """Abort the turn of a conversation that is in progress; the conversation itself can go on.

        What the turn has done stays in the transcript: the user's message, completed tool calls, and what had arrived
        of the answer. Tool calls without a result are recorded as cancelled. A request that arrives after the turn has
        ended is refused.

        Args:
            run: The conversation.
            reason: Why, for the record.
            partial: The text of the model's answer so far, as the caller received it.
        """
        row = self._project.reader.find(run)
        check_not_imported(row, "aborted: it is never executed here")
        if row.status in ENDED:
            raise RunNotResumable(f"run `{row.run_id}` is already {row.status}", hint="There is nothing to abort.")
        self._project.journal.post(row.run_id, AbortTurn(reason, self._project.scrub(partial)))
        self._executor.polling.notify(row.run_id)
        for child in descendants(self._project.journal, row.run_id):
            if child.status not in ENDED:
                self._project.journal.post(child.run_id, Cancel(reason))
                self._executor.polling.notify(child.run_id)

    def remember(self, run: str, text: str) -> None:
        """Let a conversation remember a text, beyond any compaction. The next turn sees it.

        Raises:
            MutationInvalid: The text is blank, or the run has no conversation.
        """
        self._change_memory(run, "remember", text)

    def forget(self, run: str, experience: str) -> None:
        """Let a conversation forget an experience, by its id.

        Raises:
            MutationInvalid: The conversation does not remember it.
        """
        self._change_memory(run, "forget", experience)

    def _change_memory(self, run: str, action: Literal["remember", "forget"], text: str) -> None:
        row = self._project.reader.find(run)
        check_not_imported(row, "changed: it is never executed here")
        if row.status in ENDED:
            raise RunNotResumable(
                f"run `{row.run_id}` is already {row.status}", hint="Its memory is not used any more."
            )
        state, value = self._project.reader.state(row.run_id), self._project.scrub(text)
        if state.phase not in state.conversations:
            raise MutationInvalid(f"phase `{state.phase}` of run `{row.run_id}` has no conversation yet")
        if error := memory_error(memory_of(state, state.phase), action, value):
            raise MutationInvalid(error)
        self._project.journal.post(row.run_id, ChangeMemory(action, value))
        self._executor.polling.notify(row.run_id)
        self._executor.take_messages(row.run_id)
