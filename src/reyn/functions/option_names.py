"""Options by the names that other libraries give them: an error names the option of Reyn that does the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from reyn.documents import nearest_hint
from reyn.errors import ArgumentsInvalid, FunctionInvalid

_OF_MODEL = "Set it for the model: `llm_interface=OpenAICompatible(…, {name}=…)`, or under `models` in reyn.yaml."
_NO_SAMPLING = "Reyn sends `temperature` and `max_tokens` only; set other sampling options at the server of the model."
_MEMORY = "Name the conversation with `options(key=…)`; `memory=True` of `@llm_chat` gives it a memory."
_DOCSTRING = "Write it as the docstring, with `template_params` for the values that it contains."
_TURNS = "Use `max_act_turns`, the number of turns in which the model calls tools."
_STREAM = "Leave it out and iterate: `async for item in chat(…)`, or `async for partial in function.stream(…)`."
_RATES = "Set `requests_per_minute` under `endpoints` in reyn.yaml."
_TEMPLATE = "Use `options(template_params={…})` before the call."
_ABORT = "Use `options(abort=AbortSignal())` of a chat, or cancel the task of the call."
_EVENTS = "Use `options(listener=…)`, which receives the events of the run, or iterate over the call."
_KEY = "Pass `api_key` or `key` to `OpenAICompatible`, or `key` under `models` in reyn.yaml."

INSTEAD = {
    "stream": _STREAM,
    "streaming": _STREAM,
    "return_mode": _STREAM,
    "max_tool_calls": _TURNS,
    "max_iterations": _TURNS,
    "max_turns": _TURNS,
    "tools": "Use `toolkit=[…]`.",
    "model": "Use `llm_interface`.",
    "llm": "Use `llm_interface`.",
    "retries": "Use `max_retries` for rejected answers; `retries` of the model is for failed calls.",
    "system_prompt": _DOCSTRING,
    "system_prompt_template": _DOCSTRING,
    "user_prompt_template": "The model reads the arguments as JSON. Write what they mean into the docstring.",
    "strict_signature": "Leave it out. A chat has one message, and optionally `history`.",
    "self_reference": _MEMORY,
    "self_reference_key": _MEMORY,
    "reasoning_effort": "Use `effort`.",
    "temperature": _OF_MODEL.format(name="temperature"),
    "timeout": _OF_MODEL.format(name="timeout"),
    "base_url": _OF_MODEL.format(name="base_url"),
    "max_completion_tokens": _OF_MODEL.format(name="max_tokens"),
    "api_key": _KEY,
    "api_key_pool": _KEY,
    "max_retries": "Use `retries`: how often a failed call is repeated.",
    "retry_delay": "Leave it out. The delay grows with each retry, and follows what the server asks for.",
    "rate_limit_capacity": _RATES,
    "rate_limit_refill_rate": _RATES,
    "context_window": "Set `context_tokens` of the model under `models` in reyn.yaml.",
    "api_params": "Pass `temperature`, `max_tokens` and `effort`. " + _NO_SAMPLING,
    "too_long_to_file": "Leave it out. A long result is truncated for the model, which can read the rest.",
    "prompt_injection_builder": "Use `best_practices`, or a hook for text that changes.",
    "_template_params": _TEMPLATE,
    "template_params": _TEMPLATE,
    "_abort_signal": _ABORT,
    "abort": _ABORT,
    "abort_signal": _ABORT,
    "history": "Declare a parameter `history` to pass messages.",
    "chat_history": "Declare a parameter `history` to pass messages.",
    "enable_event": _EVENTS,
    "event_emitter": _EVENTS,
    "trace_id": "Use `options(run_id=…)`.",
    "key": "Use `options(key=…)` before the call.",
    "run_id": "Use `options(run_id=…)` before the call.",
} | dict.fromkeys(
    ("top_p", "top_k", "seed", "stop", "n", "logprobs", "logit_bias", "frequency_penalty", "presence_penalty"),
    _NO_SAMPLING,
)
"""What to use instead of an option that Reyn does not have."""


def check_option_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Check the names of options.

    Raises:
        FunctionInvalid: One is unknown; the hint names what to use.
    """
    for name in given:
        if name not in known:
            raise FunctionInvalid(f"{what} has no option `{name}`", hint=instead(name, known))


def instead(name: str, known: Collection[str]) -> str:
    """Return what to use instead of an option."""
    return (
        INSTEAD.get(name) or nearest_hint(name, known) or f"Use one of these: {', '.join(f'`{one}`' for one in known)}."
    )


def arguments_error(what: str, error: TypeError, given: Iterable[str], parameters: Collection[str]) -> ArgumentsInvalid:
    """Return the error of a call whose arguments do not fit the signature."""
    unknown = next((name for name in given if name not in parameters), None)
    names = ", ".join(f"`{name}`" for name in parameters) or "none"
    hint = f"Its parameters: {names}."
    if unknown is not None:
        hint = INSTEAD.get(unknown) or nearest_hint(unknown, parameters) or hint
    return ArgumentsInvalid(f"{what}: {error}", hint=hint)
