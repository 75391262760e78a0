"""Run a GGUF model in this process with llama.cpp: no key, no network. Needs the extra `local`.

A grammar constrains the output to the contract. Small models decide in two steps: a call for the choice alone, then one
for an answer that makes this choice. A model is loaded once per process, and calls run one after another. The state
after a prompt is reused by later calls; the state after the static part of a prompt also by later processes
(`prompt_cache`), which saves most of the time to the first token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import re
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from reyn.config.values import LOCAL_WINDOW
from reyn.errors import ModelBroken, ModelNotInstalled, PromptTooLong, ResponseIncomplete, SchemaRejected
from reyn.journal.kinds import Usage
from reyn.models.chat_messages import to_plain_text
from reyn.models.choice_probability import Token, choice_probability, label_probabilities
from reyn.models.decoding import decoding_schema
from reyn.models.prompt_cache import PromptCache
from reyn.models.protocol import PLAIN_TEXT, Message, ModelAnswer
from reyn.models.topics import Topic, similarity, topic, weighed, weighed_acts
from reyn.models.usage_bound import prompt_bound
from reyn.models.weights import DEFAULT_WEIGHTS, KNOWN_WEIGHTS, is_gguf, weights_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reyn.config import ModelSettings
    from reyn.errors import ModelError
    from reyn.models.protocol import ChoicePrompt, ModelRequest, OpChoice, OutputMode

R = TypeVar("R")

_LOAD_HINT = (
    "Check that the file is complete (pull its weights again to repair it) and that `context_tokens` fits into memory."
)
_LENGTH_HINT = "Shorten the instructions or the input, or raise the model's `context_tokens` in reyn.yaml."
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
_BATCH_TOKENS = 32
"""Prompt tokens per batch. A call can be cancelled between batches; larger ones are not faster on a CPU."""

REASON = "This is about "
"""How the grammar makes a reason begin. A small model that may begin as it likes copies the first choice that it has
read; one that has to paraphrase the input then chooses by that."""
REASON_BEGINS = '{"reason": "' + REASON.rstrip()
"""How an answer begins whose choice is made. The blank belongs to the next token."""
_TOP_TOKENS = 20
"""Token probabilities to ask for; more labels than this are not distinguished."""
TWO_STEP_PARAMETERS = 1_000_000_000
"""By default, models with fewer parameters decide in two steps."""
_CHOICE_BEGINS = '{"choice": "'
_LABEL_TOKENS = 100
_TOPIC_BEGINS = 'One word: "'
_TOPIC_TOKENS = 500
_MAX_LABEL_TOKENS = 64
_STREAM = {"cache_prompt": True, "stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
_ANSWER_KEYS = ("grammar", "logprobs", "top_logprobs")
"""What a request says about the answer rather than the prompt."""

_THREAD = ThreadPoolExecutor(1, thread_name_prefix="reyn-local")
"""Runs all calls in turn, because they compete for the same cores; a queue of calls blocks no other thread."""

_LOADED: dict[tuple[str, int, int], _Engine] = {}
"""Loaded models by path, threads and context size. Only `_THREAD` accesses it."""


class LocalModel:
    """A GGUF model: `local` has the default weights of `reyn.models.weights`, `local:FILE.gguf` any other."""

    takes_time = True

    def __init__(self, name: str, path: Path, settings: ModelSettings, *, is_small: bool = False) -> None:
        self.name = name
        self.path = path
        self._settings = settings
        self._is_small = is_small
        self._rejected_contracts: set[bytes] = set()

    @classmethod
    def locate(cls, name: str, source: str, settings: ModelSettings, root: Path) -> LocalModel:
        """Find the weights of a model without loading them.

        Args:
            name: The name that the journal records.
            source: The name of pullable weights, the path of a GGUF file, or empty for the default weights.
            settings: The settings of the model.
            root: The project's folder, to which paths are relative.

        Raises:
            ModelNotInstalled: If the file is missing or is not a GGUF file.
        """
        known = KNOWN_WEIGHTS.get(source or DEFAULT_WEIGHTS)
        path = weights_path(known) if known else root / Path(source).expanduser()
        hint = (
            f"Pull the weights `{known.name}`." if known else "Set the model to `local:` and the path of a GGUF file."
        )
        if not path.is_file():
            message = f"model `{known.name}` is not installed" if known else f"model file not found: `{source}`"
            raise ModelNotInstalled(message, hint=hint)
        if not is_gguf(path):
            raise ModelNotInstalled(f"`{path.name}` is not a GGUF file", hint=hint)
        small = {weights_path(weights).resolve() for weights in KNOWN_WEIGHTS.values()}
        return cls(name, path, settings, is_small=path.resolve() in small)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Generate in a thread. A cancelled call stops at the next token or the next batch of prompt tokens."""
        cancelled = threading.Event()
        on_delta = _in_loop(request.on_delta) if request.on_delta else None
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(_THREAD, self._generate, request, cancelled, on_delta)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def choose(self, request: ModelRequest) -> Choice:
        """Return the first step of an answer, for a request that has a `choice_prompt`."""
        assert request.choice_prompt is not None
        prompt, labels = request.choice_prompt, self._choices(request)

        def choose() -> Choice:
            return _engine(self.path, self._settings).choose(prompt, labels, threading.Event())

        return await asyncio.get_running_loop().run_in_executor(_THREAD, choose)

    async def with_tokenizer(self, work: Callable[[Callable[[str], int]], R]) -> R:
        """Call `work` with the tokenizer of the engine, in the thread of the engine."""

        def count() -> R:
            engine = _engine(self.path, self._settings)
            return work(lambda text: engine.count_tokens(_defuse(text)))

        return await asyncio.get_running_loop().run_in_executor(_THREAD, count)

    def usage_bound(self, request: ModelRequest) -> Usage:
        """Return the most tokens of a call: of all prompts, if the choice is asked for first."""
        window, most = self._settings.window or LOCAL_WINDOW, self._settings.max_tokens
        prompts: list[Sequence[Message]] = [request.messages]
        if (choice := request.choice_prompt) is not None and self._settings.two_step != "never":
            texts = (choice.text, *choice.topic_texts, *(text for parts in choice.replies for text in parts))
            prompts += [choice.messages, *((Message("system", choice.topic), Message("user", text)) for text in texts)]
            most += _MAX_LABEL_TOKENS + len(texts)
        return Usage(sum(min(prompt_bound(prompt), window) for prompt in prompts), most)

    def _generate(
        self, request: ModelRequest, cancelled: threading.Event, on_delta: Callable[[str], None] | None
    ) -> ModelAnswer:
        engine = _engine(self.path, self._settings)
        contract = hashlib.sha256(msgspec.json.encode(request.contract)).digest()
        is_free = (
            self._settings.mode == "free" or contract in self._rejected_contracts or request.contract == PLAIN_TEXT
        )
        mode: OutputMode = "free" if is_free else "grammar"
        is_measured = mode == "grammar" and request.answer_form == "short"
        labels = self._labels(request)
        choice = None
        if is_measured and request.choice_prompt and self._has_two_steps(engine):
            choice = engine.choose(request.choice_prompt, self._choices(request), cancelled)
        op = choice.op(request) if choice else None
        if choice and request.choice_prompt and request.choice_prompt.field and op is None:
            return self._reply(request, choice, request.choice_prompt.field, engine, cancelled)
        messages = request.decided_messages(op) if choice else request.messages
        body: dict[str, Any] = {
            "messages": _rendered(to_plain_text(messages, self.name)),
            "max_tokens": self._settings.max_tokens,
        } | _STREAM
        if self._settings.temperature is not None:
            body["temperature"] = self._settings.temperature
        if is_measured and choice is None:
            body |= {"logprobs": True, "top_logprobs": _TOP_TOKENS}
        rest = None
        try:
            if mode == "grammar":
                schema = decoding_schema(
                    request.contract,
                    is_small=self._is_small,
                    asks_confidence=not is_measured,
                    reason_begins=REASON,
                    choice=choice.label if choice else None,
                    op=op,
                )
                body["grammar"] = _grammar(schema)
                if request.answer_form == "short" and body["grammar"].startswith(_LLGUIDANCE):
                    rest = _rest_grammar(schema)
            measured = labels if is_measured and not choice else ()
            reply = engine.generate(body, cancelled, mode, on_delta, measured, rest)
            return choice.added_to(reply) if choice else reply
        except SchemaRejected as error:
            if self._settings.mode == "auto":
                self._rejected_contracts.add(contract)
                error.instead = "free"
            raise

    def _reply(
        self, request: ModelRequest, choice: Choice, field: str, engine: _Engine, cancelled: threading.Event
    ) -> ModelAnswer:
        """Generate the text of a reply in a conversation, and return it as a short answer.

        A small model writes better without a JSON object around its text, in the prompt and in the answer.
        """
        spoken = [_spoken(message, field) for message in request.decided_messages()]
        body: dict[str, Any] = {
            "messages": _rendered(to_plain_text(spoken, self.name)),
            "max_tokens": min(self._settings.max_tokens, _SMALL_REPLY if self._is_small else _REPLY),
            "repeat_penalty": _REPEAT_PENALTY,
        } | _STREAM
        if self._settings.temperature is not None:
            body["temperature"] = self._settings.temperature
        reply = engine.generate(body, cancelled, "free", None)
        text = _whole_sentences(reply.text.strip()) if reply.is_truncated else reply.text.strip()
        answer = {"reason": _REPLY_REASON, "choice": choice.label, "data": {field: text or _NO_TEXT}}
        answered = msgspec.structs.replace(reply, text=json.dumps(answer, ensure_ascii=False), is_truncated=False)
        return choice.added_to(answered)

    def _labels(self, request: ModelRequest) -> tuple[str, ...]:
        """Return the decisions on offer. A small model cannot judge that a task is impossible, and aborts at random."""
        return (*(candidate.label for candidate in request.candidates), *(() if self._is_small else ("abort",)))

    def _choices(self, request: ModelRequest) -> tuple[str, ...]:
        """Return the choices of the first step: decisions, and ops in a conversation, which cannot be aborted."""
        prompt = request.choice_prompt
        if prompt is None or not prompt.is_conversation:
            return self._labels(request)
        return (*(candidate.label for candidate in request.candidates), *(op.label for op in prompt.ops))

    def _has_two_steps(self, engine: _Engine) -> bool:
        if self._settings.two_step == "auto":
            return engine.parameters < TWO_STEP_PARAMETERS
        return self._settings.two_step == "always"


_REPLY = 400
_SMALL_REPLY = 100
"""Maximum number of tokens of a reply in a conversation. Small models do not find an end by themselves."""
_REPEAT_PENALTY = 1.15
"""Keeps small models from repeating a sentence without end."""
_REPLY_REASON = "a reply"
_NO_TEXT = "…"


def _spoken(message: Message, field: str) -> Message:
    """Return an earlier reply of the model as the text that the user saw."""
    if message.role != "assistant":
        return message
    try:
        said = msgspec.json.decode(message.text)["data"][field]
    except (msgspec.DecodeError, KeyError, TypeError):
        return message
    return Message("assistant", said) if isinstance(said, str) else message


def _whole_sentences(text: str) -> str:
    """Return a text that was cut off up to the end of its last sentence."""
    ends = [found.end() for found in re.finditer(r"[.!?](?=\s)", text)]
    return f"{text[: ends[-1]] if ends else text} …"


class Choice(NamedTuple):
    """The result of the first step.

    Attributes:
        labels: The choices on offer.
        by_examples: The probability of each label after the examples.
        similarities: The similarity of the input with the text of each choice; empty if it was not measured.
        usage: What the step used.
        replies: In a conversation with ops to choose from, the number of labels that are replies.
    """

    labels: tuple[str, ...]
    by_examples: list[float]
    similarities: list[float]
    usage: Usage
    replies: int = 0

    @property
    def label(self) -> str:
        """The choice."""
        return self.labels[max(range(len(self.labels)), key=self._probabilities.__getitem__)]

    def op(self, request: ModelRequest) -> OpChoice | None:
        """Return the op that the choice stands for; `None` if it is a decision."""
        ops = request.choice_prompt.ops if request.choice_prompt else ()
        return next((op for op in ops if op.label == self.label), None)

    @property
    def probability(self) -> float:
        """The probability of the choice among those on offer."""
        return max(self._probabilities)

    @property
    def _probabilities(self) -> list[float]:
        if not self.similarities:
            return self.by_examples
        if self.replies:
            return weighed_acts(self.by_examples, self.similarities, self.replies)
        return weighed(self.by_examples, self.similarities)

    def added_to(self, reply: ModelAnswer) -> ModelAnswer:
        """Return the reply of the second step with the probability of the choice and the usage of both steps."""
        usage = reply.usage
        if usage is not None:
            usage += self.usage
        return msgspec.structs.replace(reply, usage=usage, choice_probability=self.probability, chose_first=True)


class _Engine:
    """A loaded model. llama.cpp also opens an HTTP server on loopback; a random key protects it from other users."""

    def __init__(self, path: Path, threads: int, context: int) -> None:
        try:
            import xllamacpp  # type: ignore[import-untyped]
        except ImportError as error:
            raise ModelNotInstalled(
                "`local` models need the extra `local`", hint="pip install 'reyn[local]'"
            ) from error
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = context
        params.n_parallel = 1
        params.n_batch = params.n_ubatch = _BATCH_TOKENS
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        params.api_keys = [secrets.token_urlsafe(32)]
        params.hostnames = ["127.0.0.1"]
        params.warmup = False
        params.verbosity = 0
        self._cache = PromptCache(path, xllamacpp.__version__)
        params.slot_save_path = f"{self._cache.folder}/"
        self._headers = {"Authorization": f"Bearer {params.api_keys[0]}", "Content-Type": "application/json"}
        try:
            self._server = xllamacpp.Server(params)
        except Exception as error:
            raise ModelNotInstalled(f"cannot load `{path.name}`: {error}", hint=_LOAD_HINT) from error
        self._static_text = ""
        self._can_begin_answers = True
        self._topics: dict[str, Topic] = {}
        self.parameters = self._count_parameters()

    def choose(self, prompt: ChoicePrompt, labels: tuple[str, ...], cancelled: threading.Event) -> Choice:
        """Ask for one of the labels and nothing else, then weigh the labels by the topic of the input.

        The result does not depend on the temperature. If there is one label, the model is not asked.
        """
        if len(labels) == 1:
            return Choice(labels, [1.0], [], Usage())
        asked, usage = self._ask_label(_rendered((one.role, one.text) for one in prompt.messages), labels, cancelled)
        similarities: list[float] = []
        if self._can_begin_answers:
            own, used = self._topic(prompt.topic, prompt.text, cancelled)
            usage += used
            for texts in (*prompt.replies, *((text,) for text in prompt.topic_texts)):
                known = [self._known_topic(prompt.topic, text, cancelled) for text in texts]
                similarities.append(sum(similarity(own, one) for one, _ in known) / len(known))
                usage = sum((one for _, one in known), usage)
        return Choice(labels, label_probabilities(asked, labels), similarities, usage, len(prompt.replies))

    def _known_topic(self, system: str, text: str, cancelled: threading.Event) -> tuple[Topic, Usage]:
        """Return the topic of the text of a choice, which is read once and cached like the static part of a prompt."""
        key = f"topic\0{system}\0{text}"
        if key in self._topics:
            return self._topics[key], Usage()
        if (file := self._cache.find(key)) is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                self._topics[key] = msgspec.json.decode((self._cache.folder / file).read_bytes(), type=Topic)
                return self._topics[key], Usage()
        self._topics[key], usage = self._topic(system, text, cancelled)
        content = msgspec.json.encode(self._topics[key])
        self._cache.store(key, lambda name: (self._cache.folder / name).write_bytes(content) > 0)
        return self._topics[key], usage

    def _topic(self, system: str, text: str, cancelled: threading.Event) -> tuple[Topic, Usage]:
        """Return the words with which the model names the topic of a text, and what the call used."""
        messages = _rendered([("system", system), ("user", text)])
        body: dict[str, Any] = {"messages": messages, "max_tokens": 1, "temperature": 0} | _STREAM
        tokens_read = self._prepare(body, messages[:1], cancelled)
        body["messages"] = [*messages, {"role": "assistant", "content": _TOPIC_BEGINS}]
        answer = self._complete(body | {"logprobs": True, "top_logprobs": _TOPIC_TOKENS}, cancelled)
        reply = answer.reply("free", tokens_read, ())
        return topic(answer.tokens[0].alternatives if answer.tokens else {}), reply.usage or Usage()

    def _ask_label(
        self, messages: list[dict[str, str]], labels: Sequence[str], cancelled: threading.Event
    ) -> tuple[Sequence[Token], Usage]:
        """Ask for a label. Returns its tokens and what the call used."""
        names = " | ".join(json.dumps(label, ensure_ascii=False) for label in labels)
        body = {"messages": messages, "max_tokens": _MAX_LABEL_TOKENS, "temperature": 0} | _STREAM
        tokens_read = self._prepare(body, messages[:-1], cancelled)
        body |= {"logprobs": True, "top_logprobs": _LABEL_TOKENS}
        body["grammar"] = f'root ::= {json.dumps(_CHOICE_BEGINS)} ({names}) "\\"}}"'
        rest: dict[str, Any] = {"grammar": f'root ::= ({names}) "\\"}}"'}
        if len({label[0] for label in labels}) == len(labels):
            rest["max_tokens"] = 1  # the first token tells labels apart that begin with different letters
        answer, reply = self._begun(body, _CHOICE_BEGINS, rest, tokens_read, cancelled)
        chosen = reply.text.removeprefix(_CHOICE_BEGINS).partition('"')[0]
        if not any(chosen and label.startswith(chosen) for label in labels):
            raise ResponseIncomplete(f"the local model chose {chosen!r}, which is not on offer")
        return answer.tokens_after(_CHOICE_BEGINS), reply.usage or Usage()

    def _begun(
        self,
        body: dict[str, Any],
        beginning: str,
        rest: dict[str, Any],
        tokens_read: int,
        cancelled: threading.Event,
        on_delta: Callable[[str], None] | None = None,
        labels: tuple[str, ...] = (),
    ) -> tuple[_AnswerCollector, ModelAnswer]:
        """Let the model continue an answer; where its chat template does not allow that, ask for the whole.

        `rest` has what the request says about the rest of the answer instead of the whole.
        """
        if self._can_begin_answers:
            begun = [*body["messages"], {"role": "assistant", "content": beginning}]
            answer = self._complete(body | rest | {"messages": begun}, cancelled, on_delta, beginning)
            try:
                return answer, answer.reply("grammar", tokens_read, labels)
            except ModelBroken:
                self._can_begin_answers = False
        answer = self._complete(body, cancelled, on_delta)
        return answer, answer.reply("grammar", tokens_read, labels)

    def generate(
        self,
        body: dict[str, Any],
        cancelled: threading.Event,
        mode: OutputMode,
        on_delta: Callable[[str], None] | None,
        labels: tuple[str, ...] = (),
        rest: str | None = None,
    ) -> ModelAnswer:
        """Generate an answer, and measure the probability of its choice among `labels`.

        With the grammar `rest`, the answer begins with `REASON_BEGINS`, which then costs no output tokens.
        """
        tokens_read = self._prepare(body, body["messages"][:1], cancelled)
        if rest is None:
            return self._complete(body, cancelled, on_delta).reply(mode, tokens_read, labels)
        return self._begun(body, REASON_BEGINS, {"grammar": rest}, tokens_read, cancelled, on_delta, labels)[1]

    def _complete(
        self,
        body: dict[str, Any],
        cancelled: threading.Event,
        on_delta: Callable[[str], None] | None = None,
        beginning: str = "",
    ) -> _AnswerCollector:
        """Generate. `beginning` is the text of the answer that the request already contains."""
        if cancelled.is_set():
            raise ResponseIncomplete("the call was cancelled")
        answer = _AnswerCollector(cancelled, on_delta, beginning)
        try:
            self._server.handle_chat_completions(body, answer)
        except Exception as error:
            raise _engine_error(f"the local model failed: {error}") from error
        return answer

    def _prepare(self, body: dict[str, Any], static: list[dict[str, str]], cancelled: threading.Event) -> int:
        """Load the state after the static messages from memory or the cache, or read them now.

        Returns:
            The number of tokens that had to be read.
        """
        text = static[0]["content"] if len(static) == 1 else json.dumps(static)
        if not static or static[0]["role"] != "system" or text == self._static_text:
            return 0
        self._static_text = ""
        file = self._cache.find(text)
        if file is not None and self._slot("restore", file):
            self._static_text = text
            return 0
        unconstrained = {key: value for key, value in body.items() if key not in _ANSWER_KEYS}
        try:
            answer = self._complete(unconstrained | {"messages": static, "max_tokens": 1}, cancelled)
        except ModelBroken:
            return 0  # a chat template may require a user message; the call itself reports real errors
        if answer.is_finished and not cancelled.is_set():
            self._static_text = text
            self._cache.store(text, lambda name: self._slot("save", name))
        return answer.usage.input_tokens - answer.usage.cached_tokens if answer.usage else 0

    def _count_parameters(self) -> int:
        """Return the number of parameters of the model; a model that does not report it counts as large."""
        connection = self._connection()
        try:
            connection.request("GET", "/v1/models", headers=self._headers)
            return int(json.loads(connection.getresponse().read())["data"][0]["meta"]["n_params"])
        except (OSError, http.client.HTTPException, ValueError, KeyError, IndexError, TypeError):
            return TWO_STEP_PARAMETERS
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._server.listening_address.removeprefix("http://"), timeout=60)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without those that the chat template adds."""
        answer = self._post("/tokenize", {"content": text})
        try:
            return len(msgspec.json.decode(answer or b"", type=_Tokens).tokens)
        except msgspec.MsgspecError as error:
            raise _engine_error("the local model could not count the tokens of the prompt") from error

    def _slot(self, action: str, name: str) -> bool:
        """Save or restore the state. Returns whether it succeeded."""
        return self._post(f"/slots/0?action={action}", {"filename": name}) is not None

    def _post(self, path: str, body: dict[str, Any]) -> bytes | None:
        """Call what only the HTTP API supports; return the answer, `None` if the call failed."""
        connection = self._connection()
        try:
            connection.request("POST", path, json.dumps(body), self._headers)
            response = connection.getresponse()
            return response.read() if response.status == http.client.OK else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


class _Tokens(msgspec.Struct):
    """The answer of the engine to a text: its tokens."""

    tokens: list[int]


class _AnswerCollector:
    """Collects the chunks of an answer. Called by llama.cpp for each; returns true to stop generating."""

    def __init__(self, cancelled: threading.Event, on_delta: Callable[[str], None] | None, beginning: str = "") -> None:
        self._cancelled = cancelled
        self._on_delta = on_delta
        self._is_truncated = False
        self._beginning = beginning
        self._parts: list[str] = []
        self.tokens: list[Token] = []
        self.usage: Usage | None = None
        self._error: dict[str, Any] | None = None
        self.is_finished = False

    def __call__(self, chunk: Any) -> bool:
        if isinstance(chunk, dict):
            self._take(chunk)
        return self._cancelled.is_set()

    def _take(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk or ("code" in chunk and "message" in chunk):
            self._error = chunk.get("error", chunk)
        for choice in chunk.get("choices", ()):
            text = choice.get("delta", {}).get("content") or ""
            for token in (choice.get("logprobs") or {}).get("content") or ():
                others = {other["token"]: other["logprob"] for other in token["top_logprobs"]}
                self.tokens.append(Token(token["token"], others | {token["token"]: token["logprob"]}))
            if text and not any(self._parts):
                text = self._beginning + text
            self._parts.append(text)
            if text and self._on_delta is not None:
                self._on_delta(text)
            self.is_finished = self.is_finished or choice.get("finish_reason") is not None
            self._is_truncated = self._is_truncated or choice.get("finish_reason") == "length"
        usage = chunk.get("usage")
        if usage:
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self.usage = Usage(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), cached)

    def tokens_after(self, text: str) -> list[Token]:
        """Return the generated tokens, without those of a text with which they may begin."""
        position, generated = 0, "".join(token.text for token in self.tokens)
        end = len(text) if generated.startswith(text) else 0
        rest: list[Token] = []
        for token in self.tokens:
            if position >= end:
                rest.append(token)
            position += len(token.text)
        return rest

    def reply(self, mode: OutputMode, tokens_read: int, labels: tuple[str, ...]) -> ModelAnswer:
        """Return the reply. Tokens that `_prepare` read for this call do not count as cached."""
        if self._error is not None:
            message = str(self._error.get("message", self._error))
            if self._error.get("type") == "exceed_context_size_error":
                raise PromptTooLong(f"the prompt exceeds the context of the local model: {message}", hint=_LENGTH_HINT)
            raise _engine_error(f"the local model reported an error: {message}")
        if not self.is_finished:
            raise ResponseIncomplete("the local model stopped before the end of its answer")
        usage = self.usage
        if usage is not None:
            usage = Usage(usage.input_tokens, usage.output_tokens, max(0, usage.cached_tokens - tokens_read))
        probability = choice_probability(self.tokens, labels) if labels else None
        return ModelAnswer("".join(self._parts), usage, mode, self._is_truncated, probability)


def _rendered(messages: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"role": role, "content": text if role == "system" else _defuse(text)} for role, text in messages]


_TEMPLATE_TOKENS = re.compile(r"<(?=\||/?s>|(?:start|end)_of_turn>|/?think>)|\[(?=/?INST\])")


def _defuse(text: str) -> str:
    """Break up the tokens of chat templates in a text, which llama.cpp would take for the end of the message."""
    return _TEMPLATE_TOKENS.sub(lambda match: f"{match[0]}\u200b", text)


_LLGUIDANCE = "%llguidance"
_SEPARATORS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def _grammar(schema: dict[str, Any]) -> str:
    """Return the grammar of a schema. It allows no white space but one blank after `:` and `,`.

    Models write these blanks as part of the next token, so that they cost nothing; other white space costs tokens.
    """
    import xllamacpp

    try:
        grammar: str = xllamacpp.json_schema_to_grammar(schema)
    except Exception as error:
        raise _engine_error(f"no grammar for the schema of the answer: {error}") from error
    if not grammar.startswith(_LLGUIDANCE):
        return re.sub(r"(?m)^space ::= .*$", 'space ::= " "?', grammar)
    return f"{_LLGUIDANCE} {{}}\nstart: %json {json.dumps(schema | {'x-guidance': _SEPARATORS})}\n"


def _rest_grammar(schema: dict[str, Any]) -> str | None:
    """Return the grammar of what follows `REASON_BEGINS` in an answer; `None` if not every answer begins like that.

    Only llguidance can describe a part of a JSON object.
    """
    patterns = {_reason_pattern(branch) for branch in schema.get("anyOf", ())}
    if len(patterns) != 1 or None in patterns:
        return None
    [words] = patterns
    shared = {"x-guidance": _SEPARATORS} | ({"$defs": schema["$defs"]} if "$defs" in schema else {})
    branches: list[str] = []
    rules = [f"REASON: / {words}/"]
    for branch in schema["anyOf"]:
        parts: list[str] = []
        for name, field in list(branch["properties"].items())[1:]:
            part = f"{json.dumps(f', {json.dumps(name)}: ')} field{len(rules)}"
            parts.append(part if name in branch["required"] else f"({part})?")
            rules.append(f"field{len(rules)}: %json {json.dumps(field | shared)}")
        branches.append(" ".join(parts))
    return "\n".join((f"{_LLGUIDANCE} {{}}", rf'start: REASON "\"" ({" | ".join(branches)}) "}}"', *rules, ""))


def _reason_pattern(branch: dict[str, Any]) -> str | None:
    """Return the pattern of the reason after its beginning; `None` if the object does not begin with it."""
    name, field = next(iter(branch["properties"].items()))
    begin = f"^{REASON}"
    pattern = field.get("pattern", "") if name == "reason" and name in branch["required"] else ""
    return pattern.removeprefix(begin).removesuffix("$") if pattern.startswith(begin) else None


def _in_loop(on_delta: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap a callback so that the generating thread can call it in the event loop."""
    loop = asyncio.get_running_loop()

    def forward(text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(on_delta, text)

    return forward


def _engine_error(message: str) -> ModelError:
    """Classify an error of llama.cpp: a schema that it cannot convert to a grammar is known only by the message."""
    if "schema" in message.lower() or "grammar" in message.lower():
        return SchemaRejected(message, hint="Simplify the artifact's schema, or set the model's `mode` to `free`.")
    return ModelBroken(message, hint="Check the model file and its settings, then try again.")


def _cores() -> int:
    """Return the number of cores that affinity and the container's quota leave to this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    with contextlib.suppress(OSError, ValueError):
        quota, period = _CPU_MAX.read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _engine(path: Path, settings: ModelSettings) -> _Engine:
    threads = settings.threads or max(1, _cores() - 1)
    window = settings.window or LOCAL_WINDOW
    key = (str(path.resolve()), threads, window)
    if key not in _LOADED:
        _LOADED[key] = _Engine(path, threads, window)
    return _LOADED[key]
