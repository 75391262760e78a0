"""Run a GGUF model in this process with llama.cpp: no key, no network. Needs the extra `local`.

A grammar constrains the output to the contract. Small models decide in two steps: a call for the choice alone, then one
for an answer that makes this choice. A model is loaded once per process, and calls run one after another. The state
after a prompt is reused by later calls; the state after the static part of a prompt also by later processes
(`PromptCache`), which saves most of the time to the first token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from reyn.config.models import LOCAL_WINDOW
from reyn.errors import ModelNotInstalled, SchemaRejected
from reyn.journal.kinds import Usage
from reyn.models.chat_messages import to_plain_text
from reyn.models.decoding import decoding_schema
from reyn.models.local_engine import (
    LARGE_PARAMETERS,
    MAX_LABEL_TOKENS,
    REASON,
    STREAM,
    TEMPLATE_TOKENS,
    Engine,
    engine_error,
    to_chat_messages,
    without_control_tokens,
)
from reyn.models.narrowing import DecodingLimits
from reyn.models.prices import prompt_bound
from reyn.models.protocol import PLAIN_TEXT, Message, ModelAnswer, without_abort
from reyn.models.two_step import act_contract, choice_prompt, decided_contract
from reyn.models.weights import KNOWN_WEIGHTS, find_weights, is_gguf, weights_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.config import ModelSettings
    from reyn.models.protocol import ModelRequest
    from reyn.models.two_step import Choice, ChoicePrompt

R = TypeVar("R")

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
_TOP_TOKENS = 20
"""Token probabilities to ask for; more labels than this are not distinguished."""
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="reyn-local")
"""Runs all calls in turn, because they compete for the same cores; a queue of calls blocks no other thread."""

_LOADED: dict[tuple[str, int, int], Engine] = {}
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
        known, path = find_weights(source, root)
        hint = (
            f"Pull the weights `{known.name}`." if known else "Set the model to `local:` and the path of a GGUF file."
        )
        if path is None or not path.is_file():
            message = f"model `{known.name}` is not installed" if known else f"model file not found: `{source}`"
            raise ModelNotInstalled(message, hint=hint)
        if not is_gguf(path):
            raise ModelNotInstalled(f"`{path.name}` is not a GGUF file", hint=hint)
        small = {pulled.resolve() for pulled in map(weights_path, KNOWN_WEIGHTS.values()) if pulled}
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

        def choose() -> Choice:
            engine = _engine(self.path, self._settings)
            prompt = choice_prompt(self._readable(request, engine))
            assert prompt is not None
            return engine.choose(prompt, self._labels(request, engine, prompt), threading.Event())

        return await asyncio.get_running_loop().run_in_executor(_THREAD, choose)

    async def with_tokenizer(self, work: Callable[[Callable[[str], int]], R]) -> R:
        """Call `work` with the tokenizer of the engine, in the thread of the engine."""

        def count() -> R:
            engine = _engine(self.path, self._settings)
            return work(lambda text: engine.count_tokens(without_control_tokens(text)))

        return await asyncio.get_running_loop().run_in_executor(_THREAD, count)

    def usage_bound(self, request: ModelRequest) -> Usage:
        """Return the most tokens of a call: of all prompts, if the choice is asked for first."""
        window, most = self._settings.window or LOCAL_WINDOW, self._settings.max_tokens
        prompts: list[Sequence[Message]] = [request.messages]
        prompt = choice_prompt(request) if self._settings.two_step != "never" else None
        if prompt is not None:
            texts = (prompt.text, *prompt.topic_texts, *(text for parts in prompt.replies for text in parts))
            decided = (prompt.answer_messages(request, op) for op in (None, *prompt.ops))
            prompts[0] = max(request.messages, *decided, key=_bound)
            prompts += [prompt.messages, *((Message("system", prompt.topic), Message("user", text)) for text in texts)]
            most += MAX_LABEL_TOKENS + len(texts)
        return Usage(sum(min(_bound(one), window) for one in prompts), most)

    def _generate(
        self, request: ModelRequest, cancelled: threading.Event, on_delta: Callable[[str], None] | None
    ) -> ModelAnswer:
        engine = _engine(self.path, self._settings)
        request = self._readable(request, engine)
        digest = hashlib.sha256(msgspec.json.encode(request.contract)).digest()
        is_free = self._settings.mode == "free" or digest in self._rejected_contracts or request.contract == PLAIN_TEXT
        is_measured = not is_free and request.answer_form == "short"
        prompt = choice_prompt(request) if is_measured and self._has_two_steps(engine) else None
        choice = engine.choose(prompt, self._labels(request, engine, prompt), cancelled) if prompt else None
        try:
            if prompt is not None and choice is not None:
                return self._decide(request, prompt, choice, engine, cancelled, on_delta)
            body = self._body(request.messages)
            if is_free:
                return engine.generate(body, cancelled, "free", on_delta)
            if is_measured:
                body |= {"logprobs": True, "top_logprobs": _TOP_TOKENS}
            labels = self._labels(request, engine) if is_measured else ()
            must_act = is_measured and not request.candidates and self._has_two_steps(engine)
            contract = act_contract(request) if must_act else request.contract
            schema = decoding_schema(contract, self._limits(engine, asks_confidence=not is_measured))
            grammar, rest = _grammars(schema, request)
            return engine.generate(body | {"grammar": grammar}, cancelled, "grammar", on_delta, labels, rest)
        except SchemaRejected as error:
            if self._settings.mode == "auto":
                self._rejected_contracts.add(digest)
                error.instead = "free"
            raise

    def _decide(
        self,
        request: ModelRequest,
        prompt: ChoicePrompt,
        choice: Choice,
        engine: Engine,
        cancelled: threading.Event,
        on_delta: Callable[[str], None] | None,
    ) -> ModelAnswer:
        """Generate an answer that makes a choice."""
        op = prompt.op(choice.label)
        if prompt.field and op is None:
            reply = self._reply(request, prompt, choice.label, engine, cancelled)
        else:
            limits = self._limits(engine, asks_confidence=False)._replace(reason_length=DECIDED_REASON_LENGTH)
            schema = decoding_schema(decided_contract(request, choice.label, op), limits)
            grammar, rest = _grammars(schema, request)
            body = self._body(prompt.answer_messages(request, op)) | {"grammar": grammar}
            reply = engine.generate(body, cancelled, "grammar", on_delta, (), rest)
        return choice.added_to(reply)

    def _body(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Return the request to the engine, without a grammar."""
        body = {"messages": to_chat_messages(to_plain_text(messages, self.name)), **STREAM}
        body["max_tokens"] = self._settings.max_tokens
        return body if self._settings.temperature is None else body | {"temperature": self._settings.temperature}

    def _limits(self, engine: Engine, *, asks_confidence: bool) -> DecodingLimits:
        return DecodingLimits(
            is_small=self._is_small,
            bounds_numbers=True,
            allows_abort=self._can_abort(engine),
            asks_confidence=asks_confidence,
            reason_begins=REASON,
        )

    def _reply(
        self, request: ModelRequest, prompt: ChoicePrompt, label: str, engine: Engine, cancelled: threading.Event
    ) -> ModelAnswer:
        """Generate the text of a reply in a conversation, and return it as a short answer.

        A small model writes better without a JSON object around its text, in the prompt and in the answer.
        """
        said = [_spoken(message, prompt.field) for message in prompt.answer_messages(request)]
        body = self._body([message for message in said if message.role != "assistant" or message.text])
        body["max_tokens"] = min(self._settings.max_tokens, _SMALL_REPLY if self._is_small else _REPLY)
        reply = engine.generate(body | {"repeat_penalty": _REPEAT_PENALTY}, cancelled, "free", None)
        text = _whole_sentences(reply.text.strip()) if reply.is_truncated else reply.text.strip()
        answer = {"reason": _REPLY_REASON, "choice": label, "data": {prompt.field: text or _NO_TEXT}}
        return msgspec.structs.replace(reply, text=json.dumps(answer, ensure_ascii=False), is_truncated=False)

    def _labels(self, request: ModelRequest, engine: Engine, prompt: ChoicePrompt | None = None) -> tuple[str, ...]:
        """Return the choices on offer: decisions, and ops in a conversation, which cannot be aborted."""
        labels = tuple(candidate.label for candidate in request.candidates)
        if prompt is not None and prompt.is_conversation:
            return (*labels, *(op.label for op in prompt.ops))
        return (*labels, "abort") if self._can_abort(engine) else labels

    def _can_abort(self, engine: Engine) -> bool:
        """Return whether the model may abort: a small one cannot judge that a task is impossible."""
        return not self._is_small and engine.parameters >= LARGE_PARAMETERS

    def _readable(self, request: ModelRequest, engine: Engine) -> ModelRequest:
        """Return a request as the model may read it: one that cannot abort is not told how."""
        messages = request.messages if self._can_abort(engine) else without_abort(request.messages)
        return request if messages is request.messages else msgspec.structs.replace(request, messages=messages)

    def _has_two_steps(self, engine: Engine) -> bool:
        if self._settings.two_step == "auto":
            return engine.parameters < LARGE_PARAMETERS
        return self._settings.two_step == "always"


_REPLY = 400
_SMALL_REPLY = 100
"""Maximum number of tokens of a reply in a conversation. Small models do not find an end by themselves."""
_REPEAT_PENALTY = 1.15
"""Keeps small models from repeating a sentence without end."""
_REPLY_REASON = "a reply"
_NO_TEXT = "…"
_ACTED = ""


def _spoken(message: Message, field: str) -> Message:
    """Return an earlier answer of the model as text, because a small model imitates JSON that it sees."""
    if message.role != "assistant":
        return message
    try:
        answer = msgspec.json.decode(message.text)
        said = _ACTED if "ops" in answer else answer["data"][field]
    except (msgspec.DecodeError, KeyError, TypeError):
        return message
    return Message("assistant", said) if isinstance(said, str) else message


def _whole_sentences(text: str) -> str:
    """Return a text that was cut off up to the end of its last sentence."""
    ends = [found.end() for found in re.finditer(r"[.!?](?=\s)", text)]
    return f"{text[: ends[-1]] if ends else text} …"


def _bound(messages: Sequence[Message]) -> int:
    """Return the most tokens of a prompt, with the three bytes that breaking up each template token adds."""
    return prompt_bound(messages) + 3 * sum(len(TEMPLATE_TOKENS.findall(message.text)) for message in messages)


DECIDED_REASON_LENGTH = 30
"""A reason for a choice that is already made need not be long."""
_LLGUIDANCE = "%llguidance"
_SEPARATORS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def _grammars(schema: dict[str, Any], request: ModelRequest) -> tuple[str, str | None]:
    """Return the grammar of an answer, and that of its rest in the short form, if the answer can be begun."""
    grammar = _grammar(schema)
    is_begun = request.answer_form == "short" and grammar.startswith(_LLGUIDANCE)
    return grammar, _rest_grammar(schema) if is_begun else None


def _grammar(schema: dict[str, Any]) -> str:
    """Return the grammar of a schema. It allows no white space but one blank after `:` and `,`.

    Models write these blanks as part of the next token, so that they cost nothing; other white space costs tokens.
    """
    import xllamacpp  # type: ignore[import-untyped]

    try:
        grammar: str = xllamacpp.json_schema_to_grammar(schema)
    except Exception as error:
        raise engine_error(f"no grammar for the schema of the answer: {error}") from error
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


def _cores() -> int:
    """Return the number of cores that affinity and the container's quota leave to this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    with contextlib.suppress(OSError, ValueError):
        quota, period = _CPU_MAX.read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _engine(path: Path, settings: ModelSettings) -> Engine:
    threads = settings.threads or max(1, _cores() - 1)
    window = settings.window or LOCAL_WINDOW
    key = (str(path.resolve()), threads, window)
    if key not in _LOADED:
        _LOADED[key] = Engine(path, threads, window)
    return _LOADED[key]
