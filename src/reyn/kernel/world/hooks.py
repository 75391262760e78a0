"""Hooks: functions of a program that are called before each model call and return mutations of the transcript.

What they return is recorded as an input of the run, so that a replay needs no hook. They are called again if the
process ends before that is recorded.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from reyn.context import ContextState, apply_mutations, compile_context, estimate_tokens
from reyn.context.mutation import ContextMutation, ContextReplace, ContextSummary, ExperienceForget, ExperienceRemember
from reyn.context.records import mutation_of, record_mutation
from reyn.context.render import rendered_message, sent_text
from reyn.context.transcript import NormalizedMessageList
from reyn.errors import HookFailed, ReynError
from reyn.journal import kinds
from reyn.kernel.core.effects import HOOKS

if TYPE_CHECKING:
    from reyn.context.transcript import MemoryEntry
    from reyn.journal import Blob
    from reyn.kernel.core.effects import CallHooks, EventWithBlobs
    from reyn.kernel.core.tape import Tape
    from reyn.models.roster import Roster

Mutations = Iterable[ContextMutation] | None
Hook = Callable[["HookTurn"], Mutations | Awaitable[Mutations]]


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

    def __init__(self, effect: CallHooks, tape: Tape) -> None:
        self.run_id = tape.run_id
        self.skill = tape.state.started.skill
        self.phase = effect.phase
        self.call = effect.key.removesuffix(HOOKS)
        self.is_conversation = effect.visit == 0
        selfref = effect.conversation.selfref if effect.conversation is not None else None
        self.memory: tuple[MemoryEntry, ...] = selfref.experiences if selfref is not None else ()
        self._effect = effect
        self._tape = tape
        self._messages: NormalizedMessageList | None = None

    @property
    def messages(self) -> NormalizedMessageList:
        """What the model would see, without the system message. Texts are read when this is first used."""
        if self._messages is None:
            new, results = {blob.hash: blob.content for blob in self._effect.blobs}, self._effect.results
            sent = self._effect.messages

            def content(name: str) -> bytes:
                return new[name] if name in new else self._tape.content(name)

            self._messages = NormalizedMessageList(
                rendered_message(message, content, results=results) for message in sent.tail(sent.length)
            )
        return self._messages


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
        blobs: list[Blob] = []
        try:
            records = await self._records(effect, HookTurn(effect, tape), blobs)
            mutations = [mutation_of(record) for record in records]
            tokens, size = _size_after(effect, mutations, blobs, tape)
        except ReynError as error:
            names = ", ".join(f"`{name}`" for name in self.names)
            is_named = isinstance(error, HookFailed)
            message = self._roster.scrub(
                error.message if is_named else f"what the hook {names} returned: {error.message}"
            )
            return kinds.LlmFailed(effect.key, HookFailed.code, message, self._roster.scrub(error.own_hint)), ()
        body = kinds.ContextMutated(
            effect.key, effect.phase, self.names, tuple(records), effect.visit, tokens, size, bool(self._hooks)
        )
        return body, tuple(blobs)

    async def _records(self, effect: CallHooks, turn: HookTurn, blobs: list[Blob]) -> list[kinds.MutationRecord]:
        records: list[kinds.MutationRecord] = []
        for hook in self._hooks:
            name = hook_name(hook)
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
                    message = f"the hook `{name}`: phase `{effect.phase}` is not a conversation; it has no memory"
                    raise HookFailed(message)
                try:
                    records.append(record_mutation(mutation, blobs, self._roster.scrub))
                except ReynError as error:
                    raise HookFailed(f"the hook `{name}`: {error.message}") from error
        return records


def _size_after(effect: CallHooks, mutations: list[ContextMutation], blobs: list[Blob], tape: Tape) -> tuple[int, int]:
    """Check that mutations can be applied; return the tokens and bytes of the transcript after them.

    Raises:
        MutationInvalid: One cannot be applied.
        TranscriptInvalid: A tool call would not have exactly one result.
    """
    new = {blob.hash: blob.content for blob in blobs}

    def content(name: str) -> bytes:
        return new[name] if name in new else tape.content(name)

    conversation = effect.conversation
    if conversation is None:
        apply_mutations(effect.messages, mutations)
        return 0, 0
    before = conversation.without_history() if replaces(mutations) else conversation
    compiled = compile_context(ContextState(before.messages, before.selfref), mutations)
    is_whole = replaces(mutations)
    added = compiled.messages.length if is_whole else compiled.messages.length - before.messages.length
    texts = [sent_text(message, content, effect.results) for message in compiled.messages.tail(added)]
    tokens, size = sum(map(estimate_tokens, texts)), sum(len(text.encode()) for text in texts)
    return (tokens, size) if is_whole else (before.tokens + tokens, before.size + size)


def replaces(mutations: Iterable[ContextMutation]) -> bool:
    """Return whether mutations replace messages, instead of adding some."""
    return any(isinstance(mutation, ContextReplace | ContextSummary) for mutation in mutations)


__all__ = ["Hook", "HookCaller", "HookTurn", "check_hooks", "hook_name", "replaces"]
