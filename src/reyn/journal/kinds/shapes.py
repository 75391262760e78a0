"""Types that several events share. Events refer to texts, artifacts and schemas by hash (`ContentName`)."""

from __future__ import annotations

from operator import add
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import astuple, replace

from reyn.journal.registry import CONTENT, TEXT

Hash = Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
"""A SHA-256 hash in hexadecimal."""
ContentName = Annotated[str, msgspec.Meta(min_length=64, max_length=64, extra={CONTENT: True})]
"""The hash of a blob."""
DerivedText = Annotated[str, msgspec.Meta(extra={TEXT: True})]
"""A text that Reyn generates. Its wording may change between releases without a new rules version."""
DerivedContent = Annotated[str, msgspec.Meta(min_length=64, max_length=64, extra={CONTENT: True, TEXT: True})]
"""The hash of a blob that contains derived text."""
MAX_INTEGER = 2**53
"""A number up to this one is exact in any JSON reader and fits a column of the database."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
Tokens = Annotated[int, msgspec.Meta(ge=0)]
"""As reported by a server, so without an upper bound; nothing stores it as a number."""
OpStatus = Literal["ok", "error", "denied", "skipped", "timeout"]
AnswerForm = Literal["full", "short", "tools"]
"""The form in which a model is asked to answer; `tools` is native tool calling."""
Scalar = str | int | float | bool | None
"""A value that an expression has read; lists, objects and long texts are described in words."""


class ArtifactRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An artifact: its type, and the hash of its canonical JSON `{"data": …, "type": …}`."""

    type: str
    hash: ContentName


class DoneOp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An op of a visit that another attempt must not repeat. `text` is its content in short, for the prompt.

    `form`, `args` and `result` are set if it succeeded and what it did lasts: it counts as work of the other attempt.
    """

    text: ContentName
    form: str = ""
    args: ContentName | None = None
    result: ContentName | None = None


class StateChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What an artifact changes in the state of a run, besides the latest artifact of its type.

    `items` has how many artifacts each list then has, this one included and the oldest left out; `sums` has each sum.
    """

    items: dict[str, Annotated[int, msgspec.Meta(ge=1, le=MAX_INTEGER)]] = {}
    sums: dict[str, int | float] = {}


class EnvironmentRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An environment with packages that code ran in: its name, and the hash of what was installed in it."""

    name: str
    content: str


class RollbackRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a run returned to a phase: the artifact `rejected` that the phase had produced, and the `reason`."""

    rejected: ArtifactRef
    reason: str


class PhaseArtifact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The artifact that a visit of a phase produced; `step` is the number of the visit in its run."""

    phase: str
    artifact: ArtifactRef
    step: Count


class ImageRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An image in a message: its stored content with its media type, or the address that the provider fetches."""

    media_type: str = ""
    content: ContentName | None = None
    url: str = ""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A piece of a message: a blob, a short text, an image, or the first `results` op results, one per line.

    `digest` covers the hashes of these results. `plain` is true if the blob is an artifact that appears in words
    instead of JSON. `order` is the author's order of its fields: a JSON object with the name of each field and the
    order of the fields in it, or null. Without it, the fields are sorted. `reply` is true if the blob is a recorded
    answer with native tool calls, of which the text appears. `thoughts` are those of the answer; only the model that
    thought them receives them.
    """

    blob: ContentName | None = None
    plain: bool = False
    order: ContentName | None = None
    reply: bool = False
    text: str = ""
    results: Count = 0
    digest: Hash | None = None
    image: ImageRef | None = None
    thoughts: ContentName | None = None


class CallRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A native tool call of an answer: its id and the name of the tool. The answer itself has the arguments."""

    id: str
    name: str


class FrameMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One message to the model: the concatenation of its parts.

    `calls` are the native tool calls of an answer, `call_id` is the call that a message with role `tool` answers.
    `status` is `truncated` for an answer that was aborted, `cancelled` for a call without a result, and `unknown` for
    one that was interrupted and may have taken effect. `summary` is true if the message replaced older ones, `hook` if
    a hook added it on the user's behalf. `name` is the name of its author, if a history or a hook has it.
    """

    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[Part, ...]
    calls: tuple[CallRef, ...] = ()
    call_id: str = ""
    status: Literal["", "truncated", "cancelled", "unknown"] = ""
    reason: str = ""
    summary: bool = False
    hook: bool = False
    name: str = ""


class HistoryPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the history that a run starts with: `content` is a JSON list of `messages` messages, and `system` the
    text of the system message, in the first part that it holds for.

    `tokens` estimates the size of their texts, `size` is its length in bytes. `images` is the number of messages with
    images; those in results of ops do not count.
    """

    content: ContentName
    messages: Count
    tokens: Count
    size: Count = 0
    system: ContentName | None = None
    images: Count = 0


class TranscriptRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first `length` messages of a transcript. `digest` is the hash chain over them."""

    length: Count
    digest: Hash


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Token usage as the model reported it.

    `cached_tokens` is the part of the input that a prompt cache served, `cache_write_tokens` the part that was stored
    in one. `thinking_tokens` is the part of the output that the model thought before its answers; it is recorded if
    the server counts it. `Usage(…, thoughts=N)` sets it.
    """

    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    cached_tokens: Tokens = 0
    cache_write_tokens: Tokens = 0
    thoughts: Tokens | UnsetType = field(default=UNSET, name="thinking_tokens")
    """Not encoded if it is not set, so that calls without thoughts record no more than they need."""

    def __add__(self, other: Usage) -> Usage:
        counts = map(add, astuple(self)[:4], astuple(other)[:4])
        if self.thoughts or other.thoughts:
            return replace(Usage(*counts), thoughts=(self.thoughts or 0) + (other.thoughts or 0))
        return Usage(*counts)

    def __sub__(self, other: Usage) -> Usage:
        """What was used since `other`; never negative."""
        pairs = zip(astuple(self)[:4], astuple(other)[:4], strict=True)
        rest = Usage(*(max(0, own - before) for own, before in pairs))
        thoughts = (self.thoughts or 0) - (other.thoughts or 0)
        return replace(rest, thoughts=thoughts) if thoughts > 0 else rest

    @property
    def total(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def thinking_tokens(self) -> int:
        """The part of the output that the model thought; 0 if it is not known."""
        return self.thoughts or 0


class Charge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What model calls were charged: tokens, and money in billionths of `currency`.

    `unpriced` counts the calls whose price is unknown or in another currency; `cost` does not include them. `assumed`
    counts the calls that were charged in full, because the model reported no usage or the outcome of the call is
    unknown.
    """

    tokens: Count = 0
    cost: Count = 0
    currency: str = ""
    calls: Count = 0
    unpriced: Count = 0
    assumed: Count = 0

    def __add__(self, other: Charge) -> Charge:
        # Amounts of two currencies do not add up.
        is_foreign = self.currency != other.currency and bool(self.currency and other.currency)
        return Charge(
            self.tokens + other.tokens,
            self.cost + (0 if is_foreign else other.cost),
            self.currency or other.currency,
            self.calls + other.calls,
            self.unpriced + (other.calls if is_foreign else other.unpriced),
            self.assumed + other.assumed,
        )

    def __sub__(self, other: Charge) -> Charge:
        """What was charged since `other`; never negative."""
        return Charge(
            max(0, self.tokens - other.tokens),
            max(0, self.cost - other.cost),
            self.currency,
            max(0, self.calls - other.calls),
            max(0, self.unpriced - other.unpriced),
            max(0, self.assumed - other.assumed),
        )


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A change of one file: the hashes of its content `before` and `after`; null if the file does not exist.

    `mode` is the file mode before, `made` lists the folders to create.
    """

    path: str
    before: ContentName | None = None
    after: ContentName | None = None
    mode: Count | None = None
    made: tuple[str, ...] = ()


class SectionTokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tokens of a section of a prompt: before, and after truncation."""

    name: str
    original_tokens: Count
    tokens: Count


class FittedSection(SectionTokens, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A section of a prompt that was counted. `text` is what remains of it; null if it was not truncated."""

    text: ContentName | None = None


class TruncatedContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content that is truncated in a prompt, which has `part`. The model can read it at `workspace:.full/<name>`."""

    name: str
    content: ContentName
    part: ContentName


class PromptBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The budget of a prompt: the `limit`, and the `tokens` of the prompt as `counter` counts them.

    `factor`, per mille, calibrates the counter by the usage that the provider reported before. If the prompt was
    truncated, `sections` has the tokens of each section before and after it, and `truncated` the whole contents.
    """

    limit: Count
    tokens: Count
    counter: str
    factor: Count
    sections: tuple[SectionTokens, ...] = ()
    truncated: tuple[TruncatedContent, ...] = ()


class RestoreVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The decision of the permission gate on restoring one file: the `rule`, and the `reason` of a denial."""

    path: str
    rule: str
    reason: str = ""


MESSAGE = "message"
"""The reason of a wait for the next message of a conversation; the id of the wait ends with it."""
RETRY = "retry"
"""The reason of a wait before a failed visit is repeated."""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An open question. The run waits for the reply.

    Attributes:
        id: Identifies the question in its run: `3.1.2` is the second op of the first turn in the third visit. If a
            reply must name the question, the id is `ask-` and the beginning of the hash of what the reply authorises,
            so that no reply applies to anything else.
        reason: `question`, `message` (the next message of a conversation), `approval` (of an op), `decision` (approval
            of a phase's decision), `unsafe` (the outcome of an op is unknown after a crash) or `retry` (a failed visit
            is repeated when the time has come, or as soon as a person replies `now`).
        message: The text for the user.
        response_schema: The JSON Schema of the reply.
        expires_at: When an approval expires, or a visit is repeated, in microseconds since 1970, UTC; null if the
            question does not expire.
        run: The sub-run that asks; null if the run itself asks.
        suggestions: Suggested replies. Any other reply that matches the schema is accepted, too.
        code: The error code of the turn before, if a conversation waits for its next message because the model gave
            no usable answer to the last one; `message` says why. Otherwise empty.
    """

    id: str
    reason: str
    message: DerivedText
    response_schema: dict[str, Any]
    expires_at: int | None = None
    run: str | None = None
    suggestions: tuple[str, ...] = ()
    code: str = ""

    @property
    def is_message(self) -> bool:
        """Whether a conversation waits for its next message. Such a wait is no question."""
        return self.reason == MESSAGE

    @property
    def is_timer(self) -> bool:
        """Whether the run goes on by itself at `expires_at`: no reply is needed."""
        return self.reason == RETRY

    @property
    def is_approval(self) -> bool:
        """Whether the question asks for the approval of an op or of a phase's decision."""
        return self.reason in ("approval", "decision")

    @property
    def must_be_named(self) -> bool:
        """Whether a reply authorises an effect: it counts only if it names this question."""
        return self.is_approval or self.reason == "unsafe"

    def is_expired(self, now: int) -> bool:
        """Return whether the question has expired; an expired question accepts no reply."""
        return self.expires_at is not None and now >= self.expires_at


class OpRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="request"):
    """Work that an op asks of the kernel, before the op is performed."""


class AskRequest(OpRequest, frozen=True, tag="ask"):
    """A request of an op to ask a person."""

    message: str
    response_schema: dict[str, Any]
    suggestions: tuple[str, ...] = ()


class MemoryRequest(OpRequest, frozen=True, tag="memory"):
    """A request of an op to change the memory. `text` is the text to remember, or the id of the entry to forget."""

    action: Literal["remember", "forget", "compact"]
    text: str = ""


class RunRequest(OpRequest, frozen=True, tag="run"):
    """A request of an op to run a skill. `input` is the hash of the JSON of its input.

    With `background`, the run of the op does not wait for it. With `shares_workspace`, it uses that run's workspace.
    """

    skill: str
    input: ContentName
    background: bool = False
    shares_workspace: bool = False


class MessageRequest(OpRequest, frozen=True, tag="message"):
    """A request of an op to send a message to another agent and await the reply. `text` is the hash of the message."""

    agent: str
    text: ContentName


class Approved(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Why an op may be performed although a rule says `ask`: a person approved the action with this `digest`.

    `standing` is the run in which a person approved the op and the rule for good; empty if the action itself was
    approved in this run. `reads` is the digest of the content that the op reads, which is part of the action.
    """

    digest: Hash
    standing: str = ""
    reads: str = ""


class AskRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The origin of a message that another agent sent: the run and the call that sent it.

    `agent` is the agent that asks; empty if the run is not a conversation with one. `depth` counts the agents that
    asked one another, this message included. `answered` is the number of model answers before it, in the run that
    asks and its ancestors.
    """

    run: str
    call: str
    agent: str = ""
    depth: Count = 1
    answered: Count = 0

    @property
    def key(self) -> str:
        """Identifies the message among those of all runs."""
        return f"{self.run}/{self.call}"


class ParentRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The origin of a sub-run: the parent run, the call, and the nesting depth.

    `answered` is the number of earlier model answers in the parent and its ancestors; `path` lists the calls that lead
    to it from the root run. A `background` run has the rights of a sub-run, but is a run of its own otherwise.
    """

    run: str
    call: str
    depth: Count
    answered: Count = 0
    path: str = ""
    background: bool = False


class ForkPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The event of another run that a fork continues from."""

    run: str
    seq: Count
    hash: Hash
