"""Hooks: functions of a program that are called before each model call and return mutations of the transcript.

What they return is recorded as an input of the run, so that a replay needs no hook. They are called again if the
process ends before that is recorded.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from reyn.context import ContextState, apply_mutations, compile_context, estimate_tokens
from reyn.context.messages import MemoryEntry, NormalizedMessage, message_of
from reyn.context.mutation import (
    ContextMutation,
    ContextReplace,
    ContextSummary,
    ExperienceForget,
    ExperienceRemember,
    UserMessage,
    recent_tail,
)
from reyn.context.records import mutation_of, record_mutation, stored_message
from reyn.context.render import rendered_message, sent_text
from reyn.context.transcript import NormalizedMessageList
from reyn.errors import HookFailed, ReynError
from reyn.journal import Blob, kinds
from reyn.kernel.core.effects import HOOKS

if TYPE_CHECKING:
    from reyn.journal.outside import EventWithBlobs
    from reyn.kernel.core.effects import CallHooks
    from reyn.kernel.core.tape import Tape
    from reyn.models.roster import Roster

Mutations = Iterable[ContextMutation] | None
Hook = Callable[["HookTurn"], Mutations | Awaitable[Mutations]]
"""A function, plain or `async`, that is called before each model call; it returns mutations, or nothing."""

Render = Callable[[NormalizedMessage], NormalizedMessage]


class HookTurn:
    """The turn before which a hook is called.

    Attributes:
        run_id: The run.
        skill: The skill of the run.
        phase: The phase.
        call: The id of the model call that follows.
        is_conversation: Whether the phase is a conversation, which has a memory.
        memory: The entries of the conversation's memory.
    """

    def __init__(self, effect: CallHooks, tape: Tape, state: ContextState, render: Render) -> None:
        self.run_id = tape.run_id
        self.skill = tape.state.started.skill
        self.phase = effect.phase
        self.call = effect.key.removesuffix(HOOKS)
        self.is_conversation = effect.visit == 0
        selfref = state.data_from_selfref
        self.memory: tuple[MemoryEntry, ...] = selfref.experiences if selfref is not None else ()
        self._recorded = state.messages
        self._render = render
        self._messages: NormalizedMessageList | None = None
        self._known: dict[int, tuple[NormalizedMessage, NormalizedMessage]] = {}

    @property
    def messages(self) -> NormalizedMessageList:
        """What the model would see, with its images, but without the system message and the limit of the prompt.

        If the last answer was rejected, the last messages are that answer and the correction. Texts are read when this
        is first used.
        """
        if self._messages is None:
            pairs = [(self._render(one), one) for one in self._recorded.tail(self._recorded.length)]
            self._messages = NormalizedMessageList(rendered for rendered, _ in pairs)
            self._known = {id(pair[0]): pair for pair in pairs}
        return self._messages

    def recorded(self, message: NormalizedMessage) -> NormalizedMessage | None:
        """Return the recorded message that one of `messages` is rendered from; `None` for any other message."""
        return self._known[id(message)][1] if id(message) in self._known else None


def check_hooks(hooks: object) -> tuple[Hook, ...]:
    """Return hooks that a program passed.

    Raises:
        HookFailed: They are no list of functions.
    """
    if not isinstance(hooks, list | tuple):
        raise HookFailed(f"`hooks` is a {type(hooks).__name__}, not a list of functions", hint="Pass `hooks=[…]`.")
    for hook in hooks:
        if isinstance(hook, type) or not callable(hook):
            raise HookFailed(f"`hooks` has a {type(hook).__name__}, not a function", hint="Pass functions.")
        if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
            raise HookFailed(f"the hook `{hook_name(hook)}` is a generator", hint="Return a list of mutations.")
    return tuple(hooks)


def hook_name(hook: object) -> str:
    """Return the name under which a hook is recorded."""
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))


class HookPatch:
    """What the hooks of a turn return, as it is recorded.

    Attributes:
        records: The mutations of the messages before the correction of a rejected answer.
        blobs: Their content.
        drops_correction: Whether they leave out the correction.
        needs_images: Whether the model sees images that came with the turn or with the mutations.
        recent: The messages of the run's history that a summary keeps, as they are recorded.
    """

    def __init__(self, effect: CallHooks, tape: Tape, scrub: Callable[[str], str]) -> None:
        self._effect = effect
        self._tape = tape
        self._scrub = scrub
        self._new = {blob.hash: blob.content for blob in effect.blobs}
        self.records: list[kinds.MutationRecord] = []
        self.blobs: list[Blob] = []
        self.drops_correction = False
        self.needs_images = effect.needs_images
        self.recent: list[kinds.FrameMessage] = []
        self._before = 0, effect.needs_images
        """The number of records before the current hook, and whether there were images."""
        selfref = effect.conversation.selfref if effect.conversation is not None else None
        self._state = ContextState(effect.messages, selfref)

    def content(self, name: str) -> bytes:
        """Return content that is stored, or that will be stored with the frame or with the mutations."""
        return self._new[name] if name in self._new else self._tape.content(name)

    @property
    def mutations(self) -> list[ContextMutation]:
        """The mutations as a replay applies them."""
        return [mutation_of(record) for record in self.records]

    @property
    def turn(self) -> HookTurn:
        """The turn after the mutations so far, for the next hook."""
        self._before = len(self.records), self.needs_images
        state = compile_context(self._state, self.mutations).state
        shown = () if self.drops_correction else self._effect.correction
        state = ContextState(state.messages.append(*shown), state.data_from_selfref)
        results, scrub = self._effect.results, self._scrub
        render = partial(rendered_message, content=self.content, scrub=scrub, results=results, with_images=True)
        return HookTurn(self._effect, self._tape, state, render)

    def add(self, mutation: ContextMutation, turn: HookTurn) -> None:
        """Add a mutation that a hook returned.

        Raises:
            MutationInvalid: It cannot be recorded.
            MessageInvalid: A text is not valid Unicode.
            ImageInvalid: An image has no content.
        """
        match mutation:
            case ContextReplace(messages):
                if messages == turn.messages and len(self.records) == self._before[0]:
                    return  # the messages stay as they are
                mutation = self._replacement(messages, turn)
            case ContextSummary(keep=keep):
                if not self.drops_correction:
                    mutation = replace(mutation, keep=max(0, keep - len(self._effect.correction)))
                self._keep_recent(mutation)
            case UserMessage(content, images):
                self.needs_images = self.needs_images or message_of("user", content, images=images).shows_images
                mutation = replace(mutation, is_from_hook=True)
        blobs: list[Blob] = []
        self.records.append(record_mutation(mutation, blobs, self._scrub))
        self.blobs += blobs
        self._new |= {blob.hash: blob.content for blob in blobs}

    def _keep_recent(self, summary: ContextSummary) -> None:
        """Take over the messages of the history that a summary keeps, unless they were replaced before."""
        conversation = self._effect.conversation
        if conversation is None or not conversation.history or replaces(self.mutations):
            return
        own = conversation.messages.tail(conversation.messages.length)
        kept = recent_tail(self._effect.messages, summary.keep)
        for message in kept[: max(0, len(kept) - sum(not one.is_summary for one in own))]:
            blobs: list[Blob] = []
            self.recent.append(stored_message(message, blobs, self._scrub))
            self.blobs += blobs
            self._new |= {blob.hash: blob.content for blob in blobs}

    def _replacement(self, messages: NormalizedMessageList, turn: HookTurn) -> ContextReplace:
        """Return a replacement with the messages of the turn as they are recorded, and without the correction."""
        listed = [(message, turn.recorded(message)) for message in messages]
        self.needs_images = any(known is None or self._before[1] for one, known in listed if one.shows_images)
        recorded = [known or _added(message) for message, known in listed]
        corrections = {*map(id, self._effect.correction)}
        every = [turn.recorded(message) for message in turn.messages]
        said = [one for one in every if one is not None and one.is_said and id(one) not in corrections]
        if not said or all(known is not said[-1] for _, known in listed):
            # The user's message was changed, for instance to remove what the model must not see.
            recorded = [known or message for message, known in listed]
        if count := len(self._effect.correction):
            is_last = [*map(id, recorded[-count:])] == [*map(id, self._effect.correction)]
            recorded = recorded[:-count] if is_last else recorded
            self.drops_correction = not is_last
        return ContextReplace(NormalizedMessageList(recorded))


def _added(message: NormalizedMessage) -> NormalizedMessage:
    """Return a message that a hook added, marked as such if it is one of the user."""
    return replace(message, is_from_hook=True) if message.is_said else message


class HookCaller:
    """Calls the hooks of a program: the side effect behind `CallHooks`."""

    def __init__(self, hooks: tuple[Hook, ...], roster: Roster) -> None:
        self._hooks = hooks
        self._roster = roster

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hooks."""
        return tuple(map(hook_name, self._hooks))

    async def perform(self, effect: CallHooks, tape: Tape) -> EventWithBlobs:
        """Call the hooks in order; return the event that records their mutations, or why there are none."""
        patch = HookPatch(effect, tape, self._roster.scrub)
        try:
            for hook in self._hooks:
                await self._call(hook, effect, patch)
            tokens, size = _size_after(effect, patch)
        except ReynError as error:
            names = ", ".join(f"`{name}`" for name in self.names)
            is_named = isinstance(error, HookFailed)
            message = self._roster.scrub(
                error.message if is_named else f"what the hook {names} returned: {error.message}"
            )
            return kinds.LlmFailed(effect.key, HookFailed.code, message, self._roster.scrub(error.own_hint)), ()
        body = kinds.ContextMutated(
            effect.key,
            effect.phase,
            self.names,
            tuple(patch.records),
            effect.visit,
            tokens,
            size,
            bool(self._hooks),
            patch.needs_images,
            patch.drops_correction,
            tuple(patch.recent),
        )
        return body, tuple(patch.blobs)

    async def _call(self, hook: Hook, effect: CallHooks, patch: HookPatch) -> None:
        name, turn = hook_name(hook), patch.turn
        try:
            found = hook(turn)
            returned = await found if inspect.isawaitable(found) else found
            listed = list(returned or ())
        except Exception as error:
            raise HookFailed(f"the hook `{name}` raised {type(error).__name__}: {error}") from error
        for mutation in listed:
            if not isinstance(mutation, ContextMutation):
                raise HookFailed(f"the hook `{name}` returned a {type(mutation).__name__}, which is no mutation")
            if effect.visit != 0 and isinstance(mutation, ExperienceRemember | ExperienceForget):
                raise HookFailed(f"the hook `{name}`: phase `{effect.phase}` is not a conversation; it has no memory")
            try:
                patch.add(mutation, turn)
            except ReynError as error:
                raise HookFailed(f"the hook `{name}`: {error.message}") from error


def _size_after(effect: CallHooks, patch: HookPatch) -> tuple[int, int]:
    """Check that mutations can be applied; return the tokens and bytes of the transcript after them.

    Raises:
        MutationInvalid: One cannot be applied.
        TranscriptInvalid: A tool call would not have exactly one result.
    """
    mutations, conversation = patch.mutations, effect.conversation
    if conversation is None:
        apply_mutations(effect.messages, mutations)
        return 0, 0
    is_whole = replaces(mutations)
    before = conversation.with_recent(patch.recent) if is_whole else conversation
    compiled = compile_context(ContextState(before.messages, before.selfref), mutations)
    added = compiled.messages.length if is_whole else compiled.messages.length - before.messages.length
    texts = [sent_text(message, patch.content, effect.results) for message in compiled.messages.tail(added)]
    tokens, size = sum(map(estimate_tokens, texts)), sum(len(text.encode()) for text in texts)
    return (tokens, size) if is_whole else (before.tokens + tokens, before.size + size)


def replaces(mutations: Iterable[ContextMutation]) -> bool:
    """Return whether mutations replace messages, instead of adding some."""
    return any(isinstance(mutation, ContextReplace | ContextSummary) for mutation in mutations)


__all__ = ["Hook", "HookCaller", "HookTurn", "check_hooks", "hook_name", "replaces"]
