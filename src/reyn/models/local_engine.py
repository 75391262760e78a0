"""llama.cpp in this process: load a model, and ask it for a choice, an answer, or the number of tokens of a text.

The state after a prompt is reused by later calls; the state after the static part of a prompt also by later processes
(`PromptCache`). `local` decides what to ask for.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ModelBroken, ModelNotInstalled, PromptTooLong, ResponseIncomplete
from reyn.journal.kinds import Usage
from reyn.models.acting import CONTENT_FREE, MAX_TARGETS, ActChoice, ActPrompt, act_probability, best_act, gains
from reyn.models.decoding import BegunAnswer, engine_error
from reyn.models.prompt_cache import PromptCache
from reyn.models.protocol import ModelAnswer, OutputMode
from reyn.models.thoughts import ThinkTags, Thoughts
from reyn.models.two_step import (
    Choice,
    ChoicePrompt,
    Token,
    Topic,
    choice_probability,
    label_probabilities,
    similarity,
    topic,
)

if TYPE_CHECKING:
    import threading
    from pathlib import Path


_LOAD_HINT = (
    "Check that the file is complete (pull its weights again to repair it) and that `context_tokens` fits into memory."
)
_LENGTH_HINT = "Shorten the instructions or the input, or raise the model's `context_tokens` in reyn.yaml."
LARGE_PARAMETERS = 1_000_000_000
"""Models with fewer parameters decide in two steps by default, and cannot abort."""
_BATCH_TOKENS = 32
"""Prompt tokens per batch. A call can be cancelled between batches; larger ones are not faster on a CPU."""
REASON_BEGINS = '{"reason": "This is about'
"""The beginning of a reason after which topics are measured. It is no part of an answer. A small model that may begin
as it likes copies the first choice that it has read. The blank belongs to the next token."""
_CHOICE_BEGINS = '{"choice": "'
_LABEL_TOKENS = 100
_TOPIC_TOKENS = 500
MAX_LABEL_TOKENS = 64
STREAM = {"cache_prompt": True, "stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
_ANSWER_KEYS = ("grammar", "logprobs", "top_logprobs")
"""What a request says about the answer rather than the prompt."""


class Engine:
    """A loaded model. llama.cpp also opens an HTTP server on loopback; a random key protects it from other users."""

    def __init__(self, path: Path, threads: int, context: int) -> None:
        try:
            import xllamacpp  # type: ignore[import-untyped]  # it has no type hints
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
        params.slot_save_path = f"{self._cache.folder}/" if self._cache.folder else ""
        self._headers = {"Authorization": f"Bearer {params.api_keys[0]}", "Content-Type": "application/json"}
        try:
            self._server = xllamacpp.Server(params)
        except Exception as error:
            raise ModelNotInstalled(f"cannot load `{path.name}`: {error}", hint=_LOAD_HINT) from error
        self._static_text = ""
        self.can_begin_answers = True
        self._answers: dict[str, dict[str, float]] = {}
        self.parameters = self._count_parameters()

    def choose(self, prompt: ChoicePrompt, labels: tuple[str, ...], cancelled: threading.Event) -> Choice:
        """Ask for one of the labels and nothing else, then weigh the labels by the topic of the input.

        The result does not depend on the temperature.
        """
        asked, usage = self._ask_label(
            to_chat_messages((message.role, message.text) for message in prompt.messages), labels, cancelled
        )
        similarities: list[float] = []
        shared = Usage()
        if self.can_begin_answers:
            static = to_chat_messages([("system", prompt.topic)])
            similarities, used, shared = self._similarities(static, prompt.text, prompt.topic_texts, cancelled)
            usage += used
        return Choice(labels, label_probabilities(asked, labels), similarities, usage, shared)

    def choose_act(self, prompt: ActPrompt, cancelled: threading.Event) -> ActChoice:
        """Compare what the model answers to the input with what it answers to messages without content."""
        if not prompt.may_decide and len(prompt.acts) == 1:
            return ActChoice(prompt.acts[0], 1.0, Usage())
        if len(prompt.acts) >= MAX_TARGETS:
            likeliest, usage = self._likeliest(prompt, cancelled)
            choice = self.choose_act(likeliest, cancelled)
            return choice._replace(usage=choice.usage + usage)
        examples = to_chat_messages((message.role, message.text) for message in prompt.examples)
        biases = [self._known_bias(examples, text, prompt.names, cancelled) for text in CONTENT_FREE]
        usage = sum((spent for _, spent in biases), Usage())
        for wish in prompt.wishes:
            own, used = self._weigh(examples, wish, prompt.names, cancelled)
            usage += used
            found = gains(list(own.values()), [[bias[name] for name in prompt.names] for bias, _ in biases])
            probability = act_probability(prompt, found)
            if probability > 0.5:
                break
        else:
            return ActChoice(None, 1 - probability, usage)
        similarities = [0.0] * len(prompt.acts)
        if len(prompt.acts) > 1:
            texts = [act.text for act in prompt.acts]
            similarities, used, own_topic = self._similarities(examples, wish, texts, cancelled)
            # The prompt is that of the label and counts once.
            usage += used - Usage(own_topic.input_tokens, 0, own_topic.cached_tokens)
        act = best_act(prompt, found, similarities)
        if act.label not in prompt.groups:
            return ActChoice(act, probability, usage)
        form = self.choose_act(prompt.within(act), cancelled)
        return ActChoice(form.act, probability, usage + form.usage)

    def _likeliest(self, prompt: ActPrompt, cancelled: threading.Event) -> tuple[ActPrompt, Usage]:
        """Reduce many acts, which may differ from input to input, to the one with the topic of the input."""
        system, texts = to_chat_messages([("system", prompt.task)]), [act.text for act in prompt.acts]
        similarities, usage, _ = self._similarities(system, prompt.wishes[0], texts, cancelled)
        best = prompt.acts[max(range(len(texts)), key=similarities.__getitem__)]
        return prompt._replace(acts=(best,)), usage

    def _similarities(
        self, static: list[dict[str, str]], text: str, others: Sequence[str], cancelled: threading.Event
    ) -> tuple[list[float], Usage, Usage]:
        """Compare the topic of a text with those of others, which are static.

        Returns:
            The similarities, the usage, and the part of it for the text.
        """
        known = [self._known_topic(static, one, cancelled) for one in others]
        own, used = self._topic(static, text, cancelled)
        return [similarity(own, topic) for topic, _ in known], sum((spent for _, spent in known), used), used

    def _known_bias(
        self, examples: list[dict[str, str]], text: str, labels: tuple[str, ...], cancelled: threading.Event
    ) -> tuple[dict[str, float], Usage]:
        return self._known(
            f"label\0{json.dumps(examples)}\0{text}", lambda: self._weigh(examples, text, labels, cancelled)
        )

    def _known_topic(self, static: list[dict[str, str]], text: str, cancelled: threading.Event) -> tuple[Topic, Usage]:
        return self._known(f"topic\0{json.dumps(static)}\0{text}", lambda: self._topic(static, text, cancelled))

    def _known(self, key: str, read: Callable[[], tuple[dict[str, float], Usage]]) -> tuple[dict[str, float], Usage]:
        """Return what the model says about a static text, which is asked once and cached like a static prompt."""
        if key in self._answers:
            return self._answers[key], Usage()
        if (file := self._cache.find(key)) is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                self._answers[key] = msgspec.json.decode(self._cache.read(file), type=dict[str, float])
                return self._answers[key], Usage()
        self._answers[key], usage = read()
        content = msgspec.json.encode(self._answers[key])
        self._cache.store(key, lambda name: self._cache.write(name, content))
        return self._answers[key], usage

    def _weigh(
        self, examples: list[dict[str, str]], text: str, labels: tuple[str, ...], cancelled: threading.Event
    ) -> tuple[dict[str, float], Usage]:
        """Return the probability of each label as the answer to a text, and what the call used."""
        tokens, usage = self._ask_label([*examples, *to_chat_messages([("user", text)])], labels, cancelled)
        return dict(zip(labels, label_probabilities(tokens, labels), strict=True)), usage

    def _topic(self, static: list[dict[str, str]], text: str, cancelled: threading.Event) -> tuple[Topic, Usage]:
        """Return the words with which the model names the topic of a text, and what the call used."""
        messages = [*static, *to_chat_messages([("user", text)])]
        body: dict[str, Any] = {"messages": messages, "max_tokens": 1, "temperature": 0} | STREAM
        tokens_read = self._prepare(body, static, cancelled)
        body["messages"] = [*messages, {"role": "assistant", "content": REASON_BEGINS}]
        answer = self._complete(body | {"logprobs": True, "top_logprobs": _TOPIC_TOKENS}, cancelled)
        reply = answer.reply("free", tokens_read, ())
        return topic(answer.tokens[0].alternatives if answer.tokens else {}), reply.usage or Usage()

    def _ask_label(
        self, messages: list[dict[str, str]], labels: Sequence[str], cancelled: threading.Event
    ) -> tuple[Sequence[Token], Usage]:
        """Ask for a label. Returns its tokens and what the call used."""
        names = " | ".join(json.dumps(label, ensure_ascii=False) for label in labels)
        body = {"messages": messages, "max_tokens": MAX_LABEL_TOKENS, "temperature": 0} | STREAM
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
        if self.can_begin_answers:
            begun = [*body["messages"], {"role": "assistant", "content": beginning}]
            answer = self._complete(body | rest | {"messages": begun}, cancelled, on_delta, beginning)
            try:
                return answer, answer.reply("grammar", tokens_read, labels)
            except ModelBroken:
                self.can_begin_answers = False
        answer = self._complete(body, cancelled, on_delta)
        return answer, answer.reply("grammar", tokens_read, labels)

    def generate(
        self,
        body: dict[str, Any],
        cancelled: threading.Event,
        mode: OutputMode,
        on_delta: Callable[[str], None] | None,
        labels: tuple[str, ...] = (),
        begun: BegunAnswer | None = None,
    ) -> ModelAnswer:
        """Generate an answer, and measure the probability of its choice among `labels`.

        A beginning that is certain costs no output tokens.
        """
        tokens_read = self._prepare(body, body["messages"][:1], cancelled)
        if begun is None:
            return self._complete(body, cancelled, on_delta).reply(mode, tokens_read, labels)
        rest = {"grammar": begun.grammar}
        return self._begun(body, begun.text, rest, tokens_read, cancelled, on_delta, labels)[1]

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
            raise engine_error(f"the local model failed: {error}") from error
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
            return LARGE_PARAMETERS
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
            raise engine_error("the local model could not count the tokens of the prompt") from error

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
        self._tags, self._thoughts = ThinkTags(), list[str]()
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
            delta = choice.get("delta", {})
            thought, text = self._tags.split(delta.get("content") or "")
            self._thoughts += (delta.get("reasoning_content") or "", thought)
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
            raise engine_error(f"the local model reported an error: {message}")
        if not self.is_finished:
            raise ResponseIncomplete("the local model stopped before the end of its answer")
        usage = self.usage
        if usage is not None:
            usage = Usage(usage.input_tokens, usage.output_tokens, max(0, usage.cached_tokens - tokens_read))
        probability = choice_probability(self.tokens, labels) if labels else None
        thought, text = self._tags.end()
        summary = "".join((*self._thoughts, thought))
        thoughts = Thoughts("local", (), summary) if summary else None
        text = "".join((*self._parts, text))
        return ModelAnswer(text, usage, mode, self._is_truncated, probability, thoughts=thoughts)


def to_chat_messages(messages: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [
        {"role": role, "content": text if role == "system" else without_control_tokens(text)} for role, text in messages
    ]


TEMPLATE_TOKENS = re.compile(r"<(?=\||/?s>|(?:start|end)_of_turn>|/?think>)|\[(?=/?INST\])")


def without_control_tokens(text: str) -> str:
    """Break up the tokens of chat templates in a text, which llama.cpp would take for the end of the message."""
    return TEMPLATE_TOKENS.sub(lambda match: f"{match[0]}\u200b", text)


def in_loop(on_delta: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap a callback so that the generating thread can call it in the event loop."""
    loop = asyncio.get_running_loop()

    def forward(text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(on_delta, text)

    return forward
