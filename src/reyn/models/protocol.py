"""The interface between Reyn and a language model: request, reply and the protocols that a model implements.

A model receives everything it may know in the request and keeps no state between calls. Retries, fallback and recording
belong to `reyn.kernel.world.llm_call_recorder`; names and settings belong to `reyn.models.roster`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from reyn.config.models import Effort
from reyn.journal import canonical
from reyn.journal.kinds import AnswerForm, Usage
from reyn.models.messages import Message, ToolCall
from reyn.models.thoughts import Thoughts
from reyn.vocabulary import OpSpec

if TYPE_CHECKING:
    from reyn.config import ModelSettings
    from reyn.config.budgets import PriceSettings

R = TypeVar("R")
CountTokens = Callable[[str], int]
"""Counts the tokens of a text."""


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool that the model may call.

    Attributes:
        name: The name, unique in the request.
        description: When to call it and what it returns.
        parameters: JSON Schema of the arguments, an object.
    """

    name: str
    description: str
    parameters: dict[str, Any]


class Candidate(msgspec.Struct, frozen=True):
    """An exit that the model may choose: one entry of `candidate_outputs`.

    Attributes:
        next_phase: The phase that follows; `end` finishes the run.
        control_type: What choosing it does.
        schema_name: The type of the artifact that this exit requires.
        artifact_schema: JSON Schema of the artifact's `data`.
        description: When to choose it: the text of the edge, else the description of the artifact.
    """

    next_phase: str
    control_type: Literal["transition", "finish"]
    schema_name: str
    artifact_schema: dict[str, Any] | bool
    description: str

    @property
    def label(self) -> str:
        """The name by which the model chooses it, unique among the candidates of a phase."""
        return self.next_phase


class UnionCandidate(Candidate, frozen=True):
    """A candidate whose next phase accepts several artifact types; each of them is a candidate."""

    @property
    def label(self) -> str:
        return f"{self.next_phase}:{self.schema_name}"


_TEXT_KEYWORDS = {"type", "description", "title", "minLength", "maxLength", "examples", "default"}


def reply_field(candidates: tuple[Candidate, ...]) -> str | None:
    """Return the only field of the only candidate, if it is a required text that the model may write freely."""
    if len(candidates) != 1:
        return None
    schema = candidates[0].artifact_schema
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return None
    properties = schema.get("properties")
    if not isinstance(properties, dict) or len(properties) != 1:
        return None
    [(name, field)] = properties.items()
    is_text = isinstance(field, dict) and field.get("type") == "string" and field.keys() <= _TEXT_KEYWORDS
    return name if is_text and schema.get("required") == [name] else None


class PerformedOp(msgspec.Struct, frozen=True):
    """An op of this visit: its arguments, its result as the model sees it, and whether it succeeded."""

    args: dict[str, Any]
    result: str
    is_ok: bool = True


class Turn(msgspec.Struct, frozen=True):
    """What `messages` say about a turn in which the model may request ops, or one of a conversation.

    Attributes:
        text: The input, or what the user says.
        system: The system message without the ops on offer. If a reply is one text, it asks for text.
        done: The ops of this visit so far.
        is_conversation: Whether it is a turn of a conversation that stays open.
    """

    text: str
    system: str
    done: tuple[PerformedOp, ...] = ()
    is_conversation: bool = False


class ModelRequest(msgspec.Struct, frozen=True, dict=True):
    """One call of a model.

    Adapters of language models send `messages`. A model written in Python, or one that writes prompts of its own, can
    use `phase`, `task`, `input`, `candidates`, `ops` and `turn`, which contain the same facts as values.

    Attributes:
        messages: The prompt, a sequence that the adapter must not change. The system message is the same in every
            visit of the phase; cache it.
        contract: JSON Schema of the answer. Constrain your output to it if you can; Reyn checks every answer.
        run_id: The run that calls.
        call: The id of the call within the run, unchanged when the call is repeated after a crash.
        request_hash: Hash of messages and contract.
        answered: Number of answers that the run has recorded before this call.
        on_delta: Callback for pieces of the answer as they arrive. Calling it is optional.
        phase: The phase that is being visited.
        input_json: The input artifact as JSON, after preprocessing and without truncation; `input` decodes it.
        candidates: The exits that the model may choose.
        ops: The ops that the model may request, with the targets that calls can name.
        answer_form: The form that `messages` and `contract` ask for.
        tools: The tools that the model may call natively.
        task: The role and the instructions of the phase.
        turn: The turn, in the short form, if the model may request ops or the phase is a conversation.
        max_tokens: The most tokens that the answer may have, with its thoughts. Budgets reserve them; a model that
            exceeds them stops the run.
        needs_images: Whether images came with the turn: with the input, the message, the history or a hook. Reyn sends
            such a request only to a model that reads images. Other images are described to a model that does not.
        effort: How much the phase or the function wants the model to think; `None` leaves it to the model's settings.
    """

    messages: Sequence[Message]
    contract: dict[str, Any]
    run_id: str
    call: str
    request_hash: str
    answered: int = 0
    on_delta: Callable[[str], None] | None = None
    phase: str = ""
    input_json: bytes = b""
    candidates: tuple[Candidate, ...] = ()
    ops: tuple[OpSpec, ...] = ()
    answer_form: AnswerForm = "full"
    tools: tuple[ToolDefinition, ...] = ()
    task: str = ""
    turn: Turn | None = None
    max_tokens: int = 1024
    needs_images: bool = False
    effort: Effort | None = None

    @cached_property
    def input(self) -> Any:
        """The input artifact, `{"type": …, "data": …}`; `None` if the call has none."""
        return msgspec.json.decode(self.input_json) if self.input_json else None


ANSWER_HEADING = "\n\n# Answer\n"
"""Begins the end of the message with the input: what to answer."""

ABORT_NOTE = "If the task is impossible, choose abort, without data.\n"
"""Follows the fields of the choices in the short form."""

ABORT_INSTEAD = 'If the task is impossible, answer {"reason": ..., "choice": "abort", "confidence": ...} instead.\n'
"""A paragraph of a prompt that asks for plain text."""


def without_abort(messages: Sequence[Message]) -> Sequence[Message]:
    """Return a prompt that does not say how to abort, for a model that may not."""
    system = messages[0]
    for note, rest in ((f"\n\n{ABORT_INSTEAD}", "\n"), (ABORT_NOTE, "")):
        before, found, after = system.text.rpartition(note)
        if found:
            return (msgspec.structs.replace(system, text=before + rest + after), *messages[1:])
    return messages


PLAIN_TEXT: dict[str, Any] = {"type": "string"}
"""The contract of a request whose answer is plain text: constrain nothing."""

OutputMode = Literal["grammar", "json_schema", "json_object", "free"]
"""How the output of a model is constrained to the contract."""


class ModelAnswer(msgspec.Struct, frozen=True):
    """A model's answer to one request.

    Attributes:
        text: The whole text.
        usage: Token counts of all prompts that the adapter sent; `None` if the model does not count.
        mode: The output mode that was used; `None` if it is unknown.
        is_truncated: Whether the answer was truncated at the model's output limit.
        choice_probability: In the short form, the probability of the choice, if the engine reports token probabilities.
        tool_calls: The native tool calls, in the order of the answer.
        thoughts: What the model thought before it answered. They are recorded, and go back to the same model with the
            results of the calls.
    """

    text: str
    usage: Usage | None = None
    mode: OutputMode | None = None
    is_truncated: bool = False
    choice_probability: float | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    thoughts: Thoughts | None = None


Completion = ModelAnswer | str | dict[str, Any]
"""What a model may return: the answer, or its text or JSON alone."""


class Delta(msgspec.Struct, frozen=True):
    """A piece of an answer, streamed to `on_delta` callbacks. Deltas are not recorded and may be lost."""

    run_id: str
    call: str
    text: str


@runtime_checkable
class Model(Protocol):
    """A language model: any object with a `name` and an async `complete` method.

    A model can implement further protocols for optional features: `DeclaresLatency`, `DeclaresAnswerForm`,
    `DeclaresPromptLimit`, `TokenizingModel`, `DeclaresSettings`, `DeclaresImages`, `DeclaresPrice`, `BoundsUsage` and
    `ClosableModel`.
    """

    @property
    def name(self) -> str:
        """Return the name that the journal records; for adapters of the catalog, the name that opens the model."""
        ...

    async def complete(self, request: ModelRequest) -> Completion:
        """Answer a request. Raise a `ModelError` if there is no answer; the run then stops and can be resumed.

        A text may be returned as it is: where the only exit takes one text, as of a function that returns `str` or in a
        chat, it is the reply. A dict is an answer in JSON.
        """
        ...


ModelFunction = Callable[[ModelRequest], Completion | Awaitable[Completion]]
"""A function that is used as a model."""


@runtime_checkable
class DeclaresLatency(Protocol):
    """A model that declares whether its answers take time; one that does not declare it is assumed to take time.

    While an answer takes time, the driver polls for a cancellation and enforces the model's timeout.
    """

    @property
    def takes_time(self) -> bool:
        """Return whether answers take time."""
        ...


@runtime_checkable
class DeclaresAnswerForm(Protocol):
    """A model that declares the form in which it is asked to answer; one that does not is asked in the full form."""

    @property
    def answer_form(self) -> AnswerForm:
        """Return the form."""
        ...


@runtime_checkable
class DeclaresPromptLimit(Protocol):
    """A model that declares how long a prompt may be; Reyn truncates longer ones, and records it."""

    @property
    def max_prompt_tokens(self) -> int:
        """Return the context window less the tokens reserved for the answer."""
        ...


@runtime_checkable
class DeclaresSettings(Protocol):
    """A model that is passed from Python with settings of its own: its timeout, and the number of retries."""

    @property
    def settings(self) -> ModelSettings:
        """Return the settings."""
        ...


@runtime_checkable
class TokenizingModel(Protocol):
    """A model with a tokenizer of its own, which counts the tokens of prompts exactly."""

    async def with_tokenizer(self, work: Callable[[CountTokens], R]) -> R:
        """Call `work` with a function that counts the tokens of a text, in any thread; return its result.

        Raise a `ModelError` if the tokenizer is not available; the run then stops and can be resumed.
        """
        ...


@runtime_checkable
class DeclaresImages(Protocol):
    """A model that declares whether it reads images; one that does not gets the description of an image as text."""

    @property
    def reads_images(self) -> bool:
        """Return whether it reads images."""
        ...


@runtime_checkable
class DeclaresPrice(Protocol):
    """A model written in Python that declares what a million of its tokens costs."""

    @property
    def price(self) -> PriceSettings:
        """Return the price."""
        ...


@runtime_checkable
class BoundsUsage(Protocol):
    """A model that knows the most tokens that a call can use, because it asks its engine more than once, for example.

    The tokens of other models are bounded by the bytes of their prompt and by `max_tokens`.
    """

    def usage_bound(self, request: ModelRequest) -> Usage:
        """Return the most input and output tokens that the usage of an answer can have."""
        ...


@runtime_checkable
class ClosableModel(Protocol):
    """A model that holds connections. The runtime closes the models that it opened."""

    async def aclose(self) -> None:
        """Close the connections."""
        ...


def takes_time(model: Model) -> bool:
    """Return whether answers of a model take time."""
    return model.takes_time if isinstance(model, DeclaresLatency) else True


def reads_images(model: Model) -> bool:
    """Return whether a model is sent images: of inputs, of messages, and of the results of tools."""
    return model.reads_images if isinstance(model, DeclaresImages) else False


# -- the recorded form of an answer with native tool calls -------------------------------------------------


class NativeReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer to a request with tools: text, tool calls, or both.

    The kernel records its canonical JSON as the text of the answer, so that a replay derives the ops from what the
    model sent.
    """

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


def encode_reply(reply: ModelAnswer, form: AnswerForm, scrub: Callable[[str], str]) -> bytes:
    """Return the bytes to record for an answer, with secrets replaced and lone surrogates escaped."""
    if form != "tools":
        return scrub(reply.text).encode("utf-8", "backslashreplace")

    def clean(text: str) -> str:
        return scrub(text).encode("utf-8", "backslashreplace").decode()

    calls = tuple(ToolCall(clean(call.id), clean(call.name), clean(call.arguments)) for call in reply.tool_calls)
    return canonical(NativeReply(clean(reply.text), calls))


def decode_reply(text: str | bytes) -> NativeReply:
    """Return a recorded answer.

    Raises:
        msgspec.MsgspecError: If the text has another shape.
    """
    return msgspec.json.decode(text, type=NativeReply)


def call_id(run_id: str, call: str, number: int) -> str:
    """Return the id of a tool call for a provider that sent none: the same for the same call, unique across runs."""
    return "call_" + hashlib.sha256(f"{run_id} {call} {number}".encode()).hexdigest()[:24]


class Embeddings(msgspec.Struct, frozen=True):
    """The vectors of texts, in their order, and the tokens that were read."""

    vectors: list[list[float]]
    tokens: int = 0


@runtime_checkable
class EmbeddingModel(Protocol):
    """A model that embeds texts."""

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector for each text.

        Raises:
            ModelError: As for `Model.complete`.
        """
        ...
