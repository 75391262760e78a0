"""Turn the events of a conversation into items: the only place that does. Each view of a conversation uses it.

`read_turns` finds messages and replies in recorded events. `ItemReader` follows a conversation that this process
executes, with ops, skills and the pieces of replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from reyn.chat.items import (
    ChatItem,
    MessageReceived,
    OpFinished,
    OpRequested,
    Reply,
    ReplyDelta,
    Restarted,
    SkillEnded,
    SkillProgressed,
    SkillStarted,
)
from reyn.contract.partial import PartialReply
from reyn.errors import turn_hint
from reyn.journal import Event, Journal, Say, decode, kinds
from reyn.models.protocol import decode_reply

if TYPE_CHECKING:
    from reyn.journal.canonical import ReadBlob
    from reyn.journal.registry import Body
    from reyn.kernel.core.snapshot import RunState
    from reyn.models import Delta

Speaker = Literal["user", "run", "agent"]


class Said(NamedTuple):
    """A message of a conversation, or the reply to it.

    Attributes:
        number: Counts the messages that the agent took, from 1. A reply has the number of its message.
        role: `user`, `run` for the report of a background run, or `agent`.
        by: The user, if known.
        run: The background run that it is about.
        message: The id of the message in the inbox; 0 is the first message of the run.
    """

    number: int = 0
    role: Speaker = "user"
    by: str = ""
    run: str = ""
    message: int = 0


_SAID = frozenset(
    body.kind
    for body in (
        kinds.RunStarted,
        kinds.MessageTaken,
        kinds.ArtifactStored,
        kinds.PhaseAborted,
    )
)
_SKIPPED = frozenset(
    body.kind
    for body in (
        kinds.RunResumed,
        kinds.TranscriptExtended,
        kinds.OverviewsRead,
        kinds.LlmRequested,
        kinds.ControlDecided,
        kinds.PhaseCompleted,
        kinds.WaitOpened,
        kinds.BudgetReserved,
        kinds.BudgetSettled,
    )
)
"""Events of every turn that are no items, so they are not decoded."""


class Messages:
    """The messages and replies of a conversation, found in its events in order."""

    def __init__(self) -> None:
        self.latest = Said()

    def read(self, body: Any) -> Said | None:
        """Return the message or reply that an event records."""
        taken: Said
        match body:
            case kinds.ArtifactStored() | kinds.PhaseAborted():
                return self.latest._replace(role="agent")
            case kinds.RunStarted():
                taken = Said()
            case kinds.MessageTaken():
                taken = Said(0, "run" if body.run else "user", body.by, body.run, body.message)
            case _:
                return None
        self.latest = taken._replace(number=self.latest.number + 1)
        return self.latest


def read_turns(events: Iterable[Event], *also: type[Body]) -> Iterator[tuple[Said | None, Event, Any]]:
    """Yield the messages and replies of a conversation, each with its event and data; `None` with events of `also`."""
    messages, others = Messages(), {body.kind for body in also}
    for event in events:
        if event.kind in _SAID or event.kind in others:
            body = decode(event)
            said = messages.read(body)
            if said is not None or event.kind in others:
                yield said, event, body


def text_of(body: Any, content: ReadBlob) -> str:
    """Return the text of a message or reply; empty for a reply that the user aborted."""
    match body:
        case kinds.RunStarted(input=artifact) | kinds.ArtifactStored(artifact=artifact):
            return artifact_text(content(artifact.hash))
        case kinds.MessageTaken(text=text):
            return content(text).decode()
        case kinds.PhaseAborted(code=code, reason=reason) if code:
            return f"(no answer: {reason}. {turn_hint(code)})"
    return ""


def _without_reply(body: kinds.PhaseAborted, text: str, usage: kinds.Usage, run: str = "") -> Reply:
    """Return the end of a turn without a reply; `text` is what its event says."""
    return Reply(text, "unanswered" if body.code else "aborted", usage, run, body.reason, body.code)


def artifact_text(artifact: bytes) -> str:
    """Return the text of a message or reply that is an artifact."""
    return str(msgspec.json.decode(artifact)["data"].get("text", ""))


def last_reply(state: RunState, content: ReadBlob) -> Reply:
    """Return how the last turn of a conversation ended that has nothing more to do."""
    end, artifact = state.turn_end, state.output.artifact
    if end is not None:
        return _without_reply(end, text_of(end, content), state.usage)
    assert artifact is not None  # a turn that was not aborted ended with a reply
    return Reply(artifact_text(content(artifact.hash)), usage=state.usage)


class SentMessage(NamedTuple):
    """A message that was sent before.

    Attributes:
        message: Its id in the inbox; 0 for the next reply, if the conversation has taken it.
        reply: The end of its turn, if it has ended.
    """

    message: int
    reply: Reply | None = None


def sent_before(journal: Journal, state: RunState, sender: str) -> SentMessage | None:
    """Return the message of a conversation that a call of an op has sent, if it has."""
    found: int | None = None
    is_taken = False
    for said, _, body in read_turns(journal.read(state.run_id), kinds.MessageQueued):
        if isinstance(body, kinds.MessageQueued | kinds.RunStarted) and body.sender == sender:
            found = body.message if isinstance(body, kinds.MessageQueued) else 0
        if said is None or found is None or said.message != found:
            continue
        is_taken = True
        if isinstance(body, kinds.PhaseAborted) and not body.code:
            found, is_taken = None, False  # its user aborted the turn, so that the message can be sent again
        elif isinstance(body, kinds.PhaseAborted):
            return SentMessage(0, _without_reply(body, text_of(body, journal.blob), state.usage))
        if isinstance(body, kinds.ArtifactStored):
            return SentMessage(0, Reply(text_of(body, journal.blob), usage=state.usage))
    if found is not None:
        return SentMessage(0 if is_taken else found)
    waiting = journal.drain(state.run_id, state.messages_taken)
    return next(
        (SentMessage(one.id) for one in waiting if isinstance(one.payload, Say) and one.payload.sender == sender), None
    )


def read_progress(event: Event, skill_of: Callable[[str], str]) -> SkillProgressed | None:
    """Return the phase that a run enters with an event; `skill_of` returns the skill of a run."""
    body = decode(event) if event.kind == kinds.PhaseStarted.kind else None
    if not isinstance(body, kinds.PhaseStarted):
        return None
    return SkillProgressed(event.run_id, skill_of(event.run_id), body.phase, body.visit)


class ItemReader:
    """Turns the events and deltas of a conversation that this process executes into items.

    Args:
        content: Returns content by its hash.
        run_id: The run; empty if it is that of the first event.
        by: The name of the user who says the first message.
        usage: The tokens so far.
    """

    def __init__(
        self,
        content: ReadBlob,
        run_id: str,
        by: str = "",
        usage: kinds.Usage | None = None,
    ) -> None:
        self.run_id = run_id
        self.usage = usage or kinds.Usage()
        self.received = 0
        """The characters of the model's answer that have arrived."""
        self.progress: dict[str, SkillProgressed] = {}
        """Where the skills are that the agent waits for, the outermost first."""
        self._content = content
        self._by = by
        self._messages = Messages()
        self._names: dict[str, str] = {}
        self._skills: dict[str, str] = {}
        self._is_answering = False
        self._pieces: list[str] = []
        self._answer = PartialReply()

    @property
    def answering(self) -> Said:
        """The message that is being answered."""
        return self._messages.latest

    @property
    def partial(self) -> str:
        """The reply so far."""
        return "".join(self._pieces)

    def read_delta(self, delta: Delta) -> ReplyDelta | None:
        """Return what a piece of the model's answer adds to the reply."""
        self.received += len(delta.text)
        # The summary of a compaction is no reply: no frame precedes it.
        if self._is_answering and delta.run_id == self.run_id and (text := self._answer.feed(delta.text)):
            self._pieces.append(text)
            return ReplyDelta(text)
        return None

    def read(self, event: Event) -> Iterator[ChatItem]:
        """Yield the items of an event of the run, or of a run that it started."""
        self.run_id = self.run_id or event.run_id
        if event.kind in _SKIPPED:
            return
        if event.run_id in self._skills and (progress := read_progress(event, self._skills.__getitem__)) is not None:
            self.progress[event.run_id] = progress
            yield progress
            return
        body = decode(event)
        match body:
            case kinds.ChildStarted(type="background"):
                yield SkillStarted(body.run, body.skill, background=True)
            case kinds.ChildStarted(type="skill"):
                self._skills[body.run] = body.skill
                yield SkillStarted(body.run, body.skill)
            case kinds.ChildEnded(type="skill", state=state) if state != "rejected":  # the op has the reason
                self.progress.pop(body.run, None)
                self._skills.pop(body.run, None)
                yield SkillEnded(body.run, "failed" if body.artifact is None else "finished", body.error)
            case _ if event.run_id == self.run_id:
                yield from self._read_own(body)

    def _read_own(self, body: Any) -> Iterator[ChatItem]:
        match body:
            case kinds.PhaseStarted():
                self.progress.clear()
            case kinds.FrameBuilt(form=form):
                self._begin_answer(is_plain=form == "tools")
            case kinds.LlmResponded(text=text, usage=usage):
                if self._answer.is_plain:
                    yield from self._before_calls(text)
                self._is_answering = False
                self.usage += usage or kinds.Usage()
            case kinds.ModelRetried(message=reason) | kinds.ModelSwitched(message=reason):
                yield from self._restart(reason)
            case kinds.ValidationError(call=call, result=str(name)):
                result = msgspec.json.decode(self._content(name))
                yield OpFinished(call, result["kind"], result["status"], result)
            case kinds.ValidationError(path=path, message=reason):
                yield from self._restart(f"{path}: {reason}")
            case kinds.OpStarted():
                arguments = msgspec.json.decode(self._content(body.args))
                self._names[body.call] = name = f"{body.op_kind}_{body.op}" if body.op else body.op_kind
                fields = {key: value for key, value in arguments.items() if key not in ("kind", "op")}
                yield OpRequested(body.call, name, fields)
            case kinds.OpCompleted() | kinds.PermissionDenied():
                result = msgspec.json.decode(self._content(body.result))
                status = body.status if isinstance(body, kinds.OpCompleted) else "denied"
                yield OpFinished(body.call, self._names.pop(body.call, body.op_kind), status, result)
            case _ if (said := self._messages.read(body)) is not None:
                item, pieces = self._said(said, body), self._pieces
                if isinstance(item, Reply):
                    self._pieces = []
                    if pieces and item.status == "replied" and "".join(pieces).strip() != item.text.strip():
                        yield Restarted("the reply is only a part of the answer")  # which was a decision as JSON
                yield item

    def _said(self, said: Said, body: Any) -> ChatItem:
        text = text_of(body, self._content)
        if said.role != "agent":
            return MessageReceived(text, self._by if isinstance(body, kinds.RunStarted) else said.by, said.run)
        if isinstance(body, kinds.PhaseAborted):
            return _without_reply(body, text, self.usage, said.run)
        return Reply(text, "replied", self.usage, said.run)

    def _before_calls(self, answer: str) -> Iterator[ChatItem]:
        """Yield the text before the tool calls of an answer, as far as it did not arrive in pieces."""
        reply = decode_reply(self._content(answer))
        if reply.tool_calls and (rest := reply.content.removeprefix(self.partial)):
            self._pieces.append(rest)
            yield ReplyDelta(rest)

    def _begin_answer(self, *, is_plain: bool) -> None:
        self._is_answering = True
        self._pieces, self._answer, self.received = [], PartialReply(is_plain=is_plain), 0

    def _restart(self, reason: str) -> Iterator[ChatItem]:
        if self._pieces:
            yield Restarted(reason)
        self._begin_answer(is_plain=self._answer.is_plain)
