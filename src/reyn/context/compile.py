"""Compile a prompt: `render(invocation, patch(base transcript, mutations))`.

The pipeline is pure and does not copy: a compiled transcript shares its storage with the one it was compiled from.
Phases, conversations and Python functions build their prompts with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import force_setattr

from reyn.context.copying import copy_nested
from reyn.context.messages import Content, message_of
from reyn.context.mutation import ContextMutation, apply_mutations
from reyn.context.selfref import DataFromSelfRef, find_summary
from reyn.context.transcript import NO_MESSAGES, NormalizedMessageList, normalize
from reyn.errors import MutationInvalid
from reyn.journal.kinds import Part
from reyn.texts import one_line

TOOLS_HEADING = "# Tools"
PRINCIPLES = "\nCall a tool through the tool call interface. Never write a call, or the result of one, as text.\n"
"""Follows the system prompt if `include_must_principles` is set."""


class ContextState(msgspec.Struct, frozen=True):
    """A conversation at one moment.

    Attributes:
        messages: The transcript.
        data_from_selfref: The memory of the conversation.
        pending_mutations: Patches that the next compilation applies.
    """

    messages: NormalizedMessageList = NO_MESSAGES
    data_from_selfref: DataFromSelfRef | None = None
    pending_mutations: tuple[ContextMutation, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "messages", normalize(self.messages))
        force_setattr(self, "pending_mutations", tuple(self.pending_mutations))

    def pending(self, *mutations: ContextMutation) -> ContextState:
        """Return the state with more pending mutations."""
        return ContextState(self.messages, self.data_from_selfref, (*self.pending_mutations, *mutations))


class CompiledContext(msgspec.Struct, frozen=True):
    """A transcript with mutations applied, and the memory after them."""

    messages: NormalizedMessageList
    data_from_selfref: DataFromSelfRef | None = None

    @property
    def state(self) -> ContextState:
        """The state that the next turn starts with: no mutation is pending."""
        return ContextState(self.messages, self.data_from_selfref)


class PromptContract(msgspec.Struct, frozen=True):
    """The sources of the system prompt, and the texts that are added to it.

    Attributes:
        base_instruction: The prompt if nothing else sets one: a docstring, or a phase's instructions.
        system_prompt: An explicit prompt; `None` if there is none.
        tool_prompt_specs: Advice about tools: `name`, and `description` or `best_practices`.
        include_must_principles: Whether to add the rule about the tool call interface.
    """

    base_instruction: Content = ""
    system_prompt: Content | None = None
    tool_prompt_specs: tuple[Mapping[str, Any], ...] = ()
    include_must_principles: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "tool_prompt_specs", tuple(map(copy_nested, self.tool_prompt_specs)))
        base_instruction: Any = self.base_instruction  # a program may pass a list
        if isinstance(base_instruction, list):
            force_setattr(self, "base_instruction", tuple(base_instruction))
        system_prompt: Any = self.system_prompt  # a program may pass a list
        if isinstance(system_prompt, list):
            force_setattr(self, "system_prompt", tuple(system_prompt))


class InvocationSpec(msgspec.Struct, frozen=True):
    """The constant part of an invocation: its name, its prompt, and its initial memory."""

    name: str = ""
    mode: Literal["phase", "function", "chat"] = "chat"
    prompt_contract: PromptContract = PromptContract()
    data_from_selfref: DataFromSelfRef | None = None


class CompiledTurnContext(msgspec.Struct, frozen=True):
    """The request of one turn.

    Attributes:
        transcript: The transcript after the mutations.
        system_prompt: The system prompt of the request.
        llm_messages: The messages of the request: the system prompt, then the transcript. Nothing is copied.
        selfref: The memory after the mutations.
    """

    transcript: NormalizedMessageList
    system_prompt: Content
    llm_messages: NormalizedMessageList
    selfref: DataFromSelfRef | None = None


class DataFromAgentConfig(msgspec.Struct, frozen=True):
    """The static configuration of a decorated function.

    Attributes:
        base_system_prompt: The docstring.
        template_params: Values for `{name}` in it; any other brace stays as it is.
        tool_prompt_specs: Advice about tools.
        include_must_principles: Whether to add the rule about the tool call interface.
    """

    base_system_prompt: str
    template_params: Mapping[str, Any] | None = None
    tool_prompt_specs: tuple[Mapping[str, Any], ...] = ()
    include_must_principles: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "tool_prompt_specs", tuple(map(copy_nested, self.tool_prompt_specs)))
        if self.template_params is not None:
            force_setattr(self, "template_params", copy_nested(self.template_params))


class CompileSource(msgspec.Struct, frozen=True):
    """Everything that a request is compiled from."""

    data_from_agent_config: DataFromAgentConfig
    data_from_selfref: DataFromSelfRef | None = None
    input_messages: NormalizedMessageList = NO_MESSAGES

    def __post_init__(self) -> None:
        force_setattr(self, "input_messages", normalize(self.input_messages))

    @property
    def invocation(self) -> InvocationSpec:
        """The constant part."""
        config = self.data_from_agent_config
        prompt = render_template(config.base_system_prompt, config.template_params or {})
        contract = PromptContract(prompt, None, config.tool_prompt_specs, config.include_must_principles)
        return InvocationSpec(prompt_contract=contract, data_from_selfref=self.data_from_selfref)


def compile_context(state: ContextState, mutations: Sequence[ContextMutation] | None = None) -> CompiledContext:
    """Return a snapshot of a conversation with mutations applied. The state stays as it is, also after an error.

    Args:
        state: The conversation.
        mutations: The patches to apply; `None` applies the pending ones, an empty list applies nothing.

    Raises:
        MutationInvalid: A mutation is unknown or cannot be applied.
        TranscriptInvalid: A tool call would not have exactly one result.
        MessageInvalid: A message has a text that is not valid Unicode.
    """
    applied = state.pending_mutations if mutations is None else mutations
    return compile_messages(state.messages, state.data_from_selfref, applied)


def compile_messages(
    base: NormalizedMessageList, selfref: DataFromSelfRef | None, mutations: Sequence[ContextMutation]
) -> CompiledContext:
    """Return `compile_context` of a state with these messages and this memory."""
    messages = apply_mutations(base, mutations, selfref)
    if has_marker(messages):
        selfref = (selfref or DataFromSelfRef()).refreshed(messages)
    return CompiledContext(messages, selfref)


def has_marker(messages: NormalizedMessageList) -> bool:
    """Return whether a transcript has typed metadata of a memory, or begins with a summary."""
    system = messages.system
    return (system is not None and system.marker is not None) or find_summary(messages) is not None


def compile_invocation_turn(
    spec: InvocationSpec,
    messages: NormalizedMessageList,
    mutations: Sequence[ContextMutation] = (),
    selfref: DataFromSelfRef | None = None,
) -> CompiledTurnContext:
    """Return the request of a turn.

    The system prompt is the first of: that of the memory, the explicit one, the latest system message of the
    transcript, the base instruction. Experiences follow it.

    Args:
        spec: What is constant in the invocation.
        messages: The base transcript.
        mutations: The patches to apply to it.
        selfref: The memory; by default the one that the invocation starts with.
    """
    snapshot = selfref if selfref is not None else spec.data_from_selfref
    compiled = compile_messages(messages, snapshot, mutations)
    base = _base_prompt(spec.prompt_contract, compiled)
    prompt = _extended(base, spec.prompt_contract, compiled.data_from_selfref)
    system = message_of("system", prompt, base=base) if prompt else None
    sent = compiled.messages.with_system(system)
    return CompiledTurnContext(compiled.messages, prompt, sent, compiled.data_from_selfref)


def compile_source(source: CompileSource, mutations: Sequence[ContextMutation] = ()) -> CompiledTurnContext:
    """Return the request that a source describes."""
    return compile_invocation_turn(source.invocation, source.input_messages, mutations)


def _base_prompt(contract: PromptContract, compiled: CompiledContext) -> Content:
    """Return the prompt that advice about tools and the memory follow."""
    selfref, latest = compiled.data_from_selfref, compiled.messages.system
    if selfref is not None and selfref.base_system_prompt:
        return selfref.base_system_prompt
    if contract.system_prompt is not None:
        return contract.system_prompt
    if latest is not None and latest.base is not None:  # it was compiled before
        return latest.base
    return latest.content if latest is not None and latest.content else contract.base_instruction


def _extended(prompt: Content, contract: PromptContract, selfref: DataFromSelfRef | None) -> Content:
    if contract.tool_prompt_specs:
        prompt = _join(prompt, _guidance(contract.tool_prompt_specs))
    if contract.include_must_principles:
        prompt = _join(prompt, PRINCIPLES)
    return _join(prompt, selfref.memory) if selfref is not None and selfref.experiences else prompt


def _join(prompt: Content, more: str) -> Content:
    if not prompt:
        return more.lstrip("\n")
    if isinstance(prompt, str):
        return prompt + ("" if prompt.endswith("\n") else "\n") + more
    return (*prompt, Part(text=more))


def _guidance(specs: tuple[Mapping[str, Any], ...]) -> str:
    lines = []
    for spec in sorted(specs, key=lambda spec: str(spec.get("name"))):
        advice = spec.get("best_practices") or spec.get("description") or ()
        texts = (advice,) if isinstance(advice, str) else advice
        lines += [f"- {one_line(str(spec.get('name', '')))}: {one_line(str(text))}\n" for text in texts]
    return f"\n{TOOLS_HEADING}\n{''.join(lines)}" if lines else ""


_FIELD = re.compile(r"\{([^\W\d]\w*)\}")


def render_template(text: str, params: Mapping[str, Any]) -> str:
    """Return a text with `{name}` replaced for every name in `params`; other braces are literal.

    Raises:
        MutationInvalid: No `{name}` exists for a parameter.
    """
    unused = set(params) - set(_FIELD.findall(text))
    if unused:
        raise MutationInvalid(f"the prompt has no `{{{min(unused)}}}`, but the template parameters have it")
    return _FIELD.sub(lambda found: str(params[found[1]]) if found[1] in params else found[0], text)
