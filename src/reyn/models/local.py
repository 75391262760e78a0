"""Run a GGUF model in this process with llama.cpp: no key, no network. Needs the extra `local`.

A grammar constrains the output to the contract. Where a model may act, whether it acts is decided first (`acting`).
Small models decide in two steps: a call for the choice alone, then one for an answer that makes this choice. A model is
loaded once per process, and calls run one after another. The state after a prompt is reused by later calls; the state
after the static part of a prompt also by later processes (`PromptCache`), which saves most of the time to the first
token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from reyn.config.models import LOCAL_WINDOW
from reyn.errors import EffortRejected, ModelNotInstalled, SchemaRejected
from reyn.journal.kinds import Usage
from reyn.models.acting import (
    CONTENT_FREE,
    DECIDE,
    MAX_TARGETS,
    ActChoice,
    ActPrompt,
    act_contract,
    act_messages,
    act_prompt,
    argument_prompts,
    is_new,
    without_acts,
)
from reyn.models.chat_messages import to_plain_text
from reyn.models.decoding import SIMPLIFY, Inexpressible, answer_grammar, begin_answer, decoding_schema
from reyn.models.local_engine import (
    LARGE_PARAMETERS,
    MAX_LABEL_TOKENS,
    STREAM,
    TEMPLATE_TOKENS,
    Engine,
    in_loop,
    to_chat_messages,
    without_control_tokens,
)
from reyn.models.messages import Message
from reyn.models.narrowing import DecodingLimits
from reyn.models.prices import prompt_bound
from reyn.models.protocol import PLAIN_TEXT, ModelAnswer, ModelRequest, reply_field, without_abort
from reyn.models.two_step import Choice, choice_prompt, decided_contract, decided_messages
from reyn.models.weights import KNOWN_WEIGHTS, find_weights, is_gguf, weights_path

if TYPE_CHECKING:
    from reyn.config import ModelSettings
    from reyn.models.protocol import Embeddings

    _OnText = Callable[[str], None] | None

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
        on_delta = in_loop(request.on_delta) if request.on_delta else None
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(_THREAD, self._generate, request, cancelled, on_delta)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def choose(self, request: ModelRequest) -> Choice:
        """Return the first step of a decision, for a request that has a `choice_prompt`."""

        def choose() -> Choice:
            engine = _engine(self.path, self._settings)
            prompt = choice_prompt(self._readable(request, engine))
            assert prompt is not None
            return engine.choose(prompt, self._labels(request, engine), threading.Event())

        return await asyncio.get_running_loop().run_in_executor(_THREAD, choose)

    async def choose_act(self, request: ModelRequest) -> ActChoice:
        """Return whether the model acts, and how, for a request that has an `act_prompt`."""

        def choose() -> ActChoice:
            engine = _engine(self.path, self._settings)
            prompt = act_prompt(request)
            assert prompt is not None
            return self._choose_act(request, prompt, engine, threading.Event())

        return await asyncio.get_running_loop().run_in_executor(_THREAD, choose)

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts with an engine that is loaded to embed, in the thread of all engines."""
        from reyn.models.local_embedding import embed

        clean = [without_control_tokens(text) for text in texts]
        return await asyncio.get_running_loop().run_in_executor(
            _THREAD, embed, self.path, _threads(self._settings), clean
        )

    async def with_tokenizer(self, work: Callable[[Callable[[str], int]], R]) -> R:
        """Call `work` with the tokenizer of the engine, in the thread of the engine."""

        def count() -> R:
            engine = _engine(self.path, self._settings)
            return work(lambda text: engine.count_tokens(without_control_tokens(text)))

        return await asyncio.get_running_loop().run_in_executor(_THREAD, count)

    def usage_bound(self, request: ModelRequest) -> Usage:
        """Return the most tokens of a call: of all prompts, if the choice is measured first."""
        window, most = self._settings.window or LOCAL_WINDOW, self._settings.max_tokens
        decision = without_acts(request)
        prompts: list[Sequence[Message]] = [max(request.messages, decision.messages, key=_bound)]
        prompt = choice_prompt(decision) if self._settings.two_step != "never" else None
        static: list[tuple[Sequence[Message], str]] = []
        if prompt is not None:
            system = (Message("system", prompt.topic),)
            static += [(system, text) for text in (prompt.text, *prompt.topic_texts)]
            prompts.append(prompt.messages)
        if (acts := act_prompt(request)) is not None:
            steps = [acts, *(acts.within(act) for act in acts.acts if act.label in acts.groups)]
            for step in steps:
                texts = (*step.wishes, *CONTENT_FREE, *step.wishes, *(act.text for act in step.acts))
                static += [(step.examples, text) for text in texts]
                static += [((Message("system", step.task),), text) for text in texts if len(step.acts) >= MAX_TARGETS]
                prompts.append(step.options())
            for asked in argument_prompts(request, acts):
                written = (act_messages(request, asked, act) for step in steps for act in step.acts)
                prompts.append(max(written, key=_bound))
                most += self._settings.max_tokens
            most += MAX_LABEL_TOKENS + _REPLY
        prompts += [(*before, Message("user", text)) for before, text in static]
        most += MAX_LABEL_TOKENS * (1 + len(static))
        return Usage(sum(min(_bound(one), window) for one in prompts), most)

    def _generate(self, request: ModelRequest, cancelled: threading.Event, on_delta: _OnText) -> ModelAnswer:
        engine = _engine(self.path, self._settings)
        self._check_effort(request)
        request = self._readable(request, engine)
        digest = hashlib.sha256(msgspec.json.encode(request.contract)).digest()
        is_free = self._settings.mode == "free" or digest in self._rejected_contracts or request.contract == PLAIN_TEXT
        try:
            if is_free:
                return engine.generate(self._body(request.messages), cancelled, "free", on_delta)
            if request.answer_form != "short" or self._settings.two_step == "never":
                return self._answer(request, engine, cancelled, on_delta)
            return self._take_turn(request, engine, cancelled, on_delta)
        except (SchemaRejected, Inexpressible) as error:
            rejected = error if isinstance(error, SchemaRejected) else SchemaRejected(str(error), hint=SIMPLIFY)
            if self._settings.mode == "auto":
                self._rejected_contracts.add(digest)
                rejected.instead = "free"
            raise rejected from error

    def _check_effort(self, request: ModelRequest) -> None:
        effort = self._settings.effort if request.effort is None else request.effort
        if effort not in (None, "none"):
            message = f"`effort` is {effort!r}, and Reyn lets no local model think: model `{self.name}`"
            raise EffortRejected(message)

    def _take_turn(
        self, request: ModelRequest, engine: Engine, cancelled: threading.Event, on_delta: _OnText
    ) -> ModelAnswer:
        """Act, if that is the next step; else decide."""
        used, probability = Usage(), 1.0
        if (prompt := act_prompt(request)) is not None:
            chosen = self._choose_act(request, prompt, engine, cancelled)
            used, probability = chosen.usage, chosen.probability
            if (act := chosen.act) is not None:
                for asked in argument_prompts(request, prompt):
                    acted = self._act(request, asked, chosen, engine, cancelled)
                    used += acted.usage or Usage()
                    if is_new(acted.text, request, act, prompt.text):
                        return msgspec.structs.replace(acted, usage=used)
                if not request.candidates:
                    return msgspec.structs.replace(acted, usage=used)
        decision = self._readable(without_acts(request), engine)
        answer = self._decide(decision, engine, cancelled, on_delta)
        certainty = None if answer.choice_probability is None else answer.choice_probability * probability
        usage = None if answer.usage is None else answer.usage + used
        return msgspec.structs.replace(answer, usage=usage, choice_probability=certainty)

    def _choose_act(
        self, request: ModelRequest, prompt: ActPrompt, engine: Engine, cancelled: threading.Event
    ) -> ActChoice:
        if self._has_two_steps(engine) and engine.can_begin_answers:
            return engine.choose_act(prompt, cancelled)
        labels = ([DECIDE] if request.candidates else []) + list(prompt.labels)
        sentence = {"type": "string", "minLength": 1, "maxLength": REASON_LENGTH}
        fields: dict[str, Any] = {"reason": sentence, "next": {"enum": labels}}
        schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
        body = self._body(prompt.options())
        reply = engine.generate(body | {"grammar": answer_grammar(schema)}, cancelled, "grammar", None)
        try:
            said = msgspec.json.decode(reply.text)
        except msgspec.DecodeError:  # it was cut off at `max_tokens`
            return ActChoice(None, 1.0, reply.usage or Usage())
        act = next((act for act in prompt.acts if act.label == said["next"]), None)
        usage, reason = reply.usage or Usage(), whole_sentences(said["reason"], REASON_LENGTH)
        if act is None or act.label not in prompt.groups:
            return ActChoice(act, 1.0, usage, reason)
        form = self._choose_act(msgspec.structs.replace(request, candidates=()), prompt.within(act), engine, cancelled)
        return ActChoice(form.act, 1.0, usage + form.usage, reason)

    def _act(
        self, request: ModelRequest, prompt: ActPrompt, chosen: ActChoice, engine: Engine, cancelled: threading.Event
    ) -> ModelAnswer:
        """Generate the arguments of the act that was chosen."""
        assert chosen.act is not None
        limits = self._limits(engine, reason_length=0)
        if self._has_two_steps(engine):
            limits = limits._replace(line_length=_MAX_ARGUMENT)
        schema = decoding_schema(act_contract(request, chosen.act), limits)
        reply = self._begin(act_messages(request, prompt, chosen.act), schema, engine, cancelled, None)
        text = reply.text.replace('{"reason": ""', '{"reason": ' + json.dumps(chosen.reason, ensure_ascii=False), 1)
        return msgspec.structs.replace(reply, text=text)

    def _decide(
        self, request: ModelRequest, engine: Engine, cancelled: threading.Event, on_delta: _OnText
    ) -> ModelAnswer:
        """Decide: in two steps, or in one with a reason of the model's own."""
        prompt = choice_prompt(request) if self._has_two_steps(engine) else None
        choice = engine.choose(prompt, self._labels(request, engine), cancelled) if prompt else None
        label = choice.label if choice else ""
        field = reply_field(request.candidates) if request.turn and request.turn.is_conversation else None
        is_decided = self._has_two_steps(engine) and not self._can_abort(engine)
        if len(request.candidates) == 1 and (field or is_decided):
            label = request.candidates[0].label
        if not label:
            return self._answer(request, engine, cancelled, on_delta)
        if field:
            answer = self._reply(request, field, label, engine, cancelled)
        else:
            schema = decoding_schema(decided_contract(request, label), self._limits(engine, reason_length=0))
            answer = self._begin(decided_messages(request), schema, engine, cancelled, on_delta)
        return choice.added_to(answer) if choice else msgspec.structs.replace(answer, choice_probability=1.0)

    def _begin(
        self,
        messages: Sequence[Message],
        schema: dict[str, Any],
        engine: Engine,
        cancelled: threading.Event,
        on_delta: _OnText,
    ) -> ModelAnswer:
        """Generate an answer of which a part is certain."""
        grammar = answer_grammar(schema)
        body = self._body(messages) | {"grammar": grammar}
        return engine.generate(body, cancelled, "grammar", on_delta, (), begin_answer(schema, grammar))

    def _answer(
        self, request: ModelRequest, engine: Engine, cancelled: threading.Event, on_delta: _OnText
    ) -> ModelAnswer:
        """Generate a whole answer in one step, and measure the probability of its choice in the short form."""
        is_measured = request.answer_form == "short"
        body = self._body(request.messages)
        if is_measured:
            body |= {"logprobs": True, "top_logprobs": _TOP_TOKENS}
        limits = self._limits(engine, reason_length=0 if self._has_two_steps(engine) else REASON_LENGTH)
        schema = decoding_schema(request.contract, limits._replace(asks_confidence=not is_measured))
        labels = self._labels(request, engine) if is_measured else ()
        reply = engine.generate(body | {"grammar": answer_grammar(schema)}, cancelled, "grammar", on_delta, labels)
        return msgspec.structs.replace(reply, text=_with_whole_reason(reply.text))

    def _body(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Return the request to the engine, without a grammar."""
        body = {"messages": to_chat_messages(to_plain_text(messages, self.name)), **STREAM}
        body["max_tokens"] = self._settings.max_tokens
        return body if self._settings.temperature is None else body | {"temperature": self._settings.temperature}

    def _limits(self, engine: Engine, *, reason_length: int) -> DecodingLimits:
        return DecodingLimits(
            is_small=self._is_small,
            bounds_numbers=True,
            allows_abort=self._can_abort(engine),
            asks_confidence=False,
            reason_length=reason_length,
        )

    def _reply(
        self, request: ModelRequest, field: str, label: str, engine: Engine, cancelled: threading.Event
    ) -> ModelAnswer:
        """Generate the text of a reply in a conversation, and return it as a short answer.

        A small model writes better without a JSON object around its text, in the prompt and in the answer.
        """
        said = [_spoken(message, field) for message in request.messages]
        body = self._body([message for message in said if message.role != "assistant" or message.text])
        body["max_tokens"] = min(self._settings.max_tokens, _SMALL_REPLY if self._is_small else _REPLY)
        reply = engine.generate(body | {"repeat_penalty": _REPEAT_PENALTY}, cancelled, "free", None)
        text = f"{_whole_part(reply.text.strip())} …" if reply.is_truncated else reply.text.strip()
        answer = {"reason": "", "choice": label, "data": {field: text or _NO_TEXT}}
        return msgspec.structs.replace(reply, text=json.dumps(answer, ensure_ascii=False), is_truncated=False)

    def _labels(self, request: ModelRequest, engine: Engine) -> tuple[str, ...]:
        """Return the choices on offer. A conversation cannot be aborted."""
        labels = tuple(candidate.label for candidate in request.candidates)
        is_conversation = request.turn is not None and request.turn.is_conversation
        return (*labels, "abort") if self._can_abort(engine) and not is_conversation else labels

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


REASON_LENGTH = 300
"""Maximum length of a reason. One that reaches it is cut off, so that only its whole sentences are recorded."""
_MAX_ARGUMENT = 600
"""Maximum length of a text in the arguments of a small model, which fills the rest with line breaks."""
_REPLY = 400
_SMALL_REPLY = 100
"""Maximum number of tokens of a reply in a conversation. Small models do not find an end by themselves."""
_REPEAT_PENALTY = 1.15
"""Keeps small models from repeating a sentence without end."""
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


def whole_sentences(text: str, most: int) -> str:
    """Return a reason that may have been cut off at a length: its whole sentences, or nothing."""
    return text.strip() if len(text) < most else _whole_part(text.strip(), "")


def _whole_part(text: str, otherwise: str | None = None) -> str:
    """Return a text up to the end of its last sentence; without one, the whole text or another."""
    ends = [found.end() for found in re.finditer(r"[.!?](?=\s|$)", text)]
    return text[: ends[-1]] if ends else text if otherwise is None else otherwise


def _with_whole_reason(text: str) -> str:
    """Return an answer whose reason is not cut off in the middle of a sentence."""
    try:
        answer = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    match answer:
        case {"control": {"reason": {"summary": str(reason)} as holder}}:
            name = "summary"
        case {"reason": str(reason)}:
            holder, name = answer, "reason"
        case _:
            return text
    if len(reason) < REASON_LENGTH:
        return text
    holder[name] = whole_sentences(reason, REASON_LENGTH)
    return json.dumps(answer, ensure_ascii=False)


def _bound(messages: Sequence[Message]) -> int:
    """Return the most tokens of a prompt, with the three bytes that breaking up each template token adds."""
    return prompt_bound(messages) + 3 * sum(len(TEMPLATE_TOKENS.findall(message.text)) for message in messages)


def _cores() -> int:
    """Return the number of cores that affinity and the container's quota leave to this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    with contextlib.suppress(OSError, ValueError):
        quota, period = _CPU_MAX.read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _threads(settings: ModelSettings) -> int:
    return settings.threads or max(1, _cores() - 1)


def _engine(path: Path, settings: ModelSettings) -> Engine:
    key = (str(path.resolve()), _threads(settings), settings.window or LOCAL_WINDOW)
    return _LOADED.get(key) or _LOADED.setdefault(key, Engine(path, *key[1:]))
