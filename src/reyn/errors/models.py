"""RYN5xx: model calls. RYN3xx: trust in servers."""

from __future__ import annotations

from typing import Any, ClassVar

from reyn.errors.base import ReynError, StoppedError
from reyn.errors.runs import AccessError


class ModelError(ReynError):
    """A model did not answer. Transient errors are retried, after `retry_after` seconds if the provider sets it.

    A call that `may_be_billed` although there is no answer is charged to the budgets in full.
    """

    is_transient: ClassVar[bool] = False
    retry_after: float | None = None
    may_be_billed: bool = True


class ModelUnknown(ModelError, code="RYN501", exit_code=2, may_be_billed=False):
    """No adapter matches the name of the model, or no model is configured."""

    hint = (
        "Set `model:` in reyn.yaml to `ADAPTER:NAME`, such as `openai:NAME`, to `local`, or to a name under `models`."
    )


class ModelUntrusted(ModelUnknown, code="RYN523"):
    """The project's own configuration names a model that needs trust, and the project is not trusted."""

    hint = "Trust the project, after a look at what it asks for, or select another model."


class ScriptInvalid(ModelError, code="RYN502", exit_code=2, may_be_billed=False):
    """A file of scripted answers cannot be read."""

    hint = "Write a JSON Lines file: each line is one answer, a JSON object or a JSON string. Blank lines are skipped."


class ScriptExhausted(ModelError, code="RYN503", may_be_billed=False):
    """The scripted model has no answer left for this call."""

    hint = "Add the missing answers, then retry the run. An answer that Reyn rejected is used up, too."


class RecordingMissing(ModelError, code="RYN504", may_be_billed=False):
    """The recorded run contains no answer to this request."""

    hint = "A prompt has changed since the recording. Compare the prompts, or use a live model."


class ModelBroken(ModelError, code="RYN505"):
    """A model raised an exception that is not a `ModelError`."""

    hint = "Fix the model's code, then resume the run. The traceback is logged to the logger `reyn.models`."


class ModelUnavailable(ModelError, code="RYN506", may_be_billed=False, is_transient=True):
    """The server cannot be reached, or reports that it cannot answer now."""

    hint = "Check that the server is running and that `base_url` is correct, then try again."


class RateLimited(ModelError, code="RYN507", may_be_billed=False, is_transient=True, error_name="rate_limited"):
    """The provider limits the rate of requests, or the account has no quota left."""

    hint = "Wait and try again, or configure a `fallback` for the model."


class KeyRejected(ModelError, code="RYN508", may_be_billed=False):
    """The API key is missing, or the provider rejects it."""

    hint = "Set the model's `key:` in reyn.yaml to `secret://NAME` or `env://VARIABLE`, and store a valid key there."


class RequestRejected(ModelError, code="RYN509", may_be_billed=False):
    """The provider rejects the request; a retry would not help."""

    hint = "The message names the reason: the model's name, a setting, or the size of the request."


class ResponseIncomplete(ModelError, code="RYN510", is_transient=True):
    """The response ended before the answer did, or does not follow the protocol."""

    hint = "Try again. If the error persists, check proxies between this machine and the server."


class ModelNotInstalled(ModelError, code="RYN511", exit_code=2, may_be_billed=False):
    """A package or the weights that a model needs are not installed."""

    hint = "Install the extra with `pip install 'reyn[EXTRA]'`, or download the weights that the message names."


class PromptTooLong(ModelError, code="RYN512", may_be_billed=False):
    """The prompt exceeds the context window of the model."""

    hint = "Shorten the instructions or the input, or use a model with a larger context window."


class ModelTimeout(ModelError, code="RYN513", is_transient=True, error_name="timeout"):
    """The model did not answer within its `timeout`."""

    hint = "Raise the model's `timeout` in reyn.yaml or use a faster model, then try again."


class SchemaRejected(ModelError, code="RYN514", may_be_billed=False):
    """The provider rejects the output format. `instead` names the format of the next attempt, if there is one."""

    hint = "Set the model's `mode` in reyn.yaml to one that its server supports."
    instead: str = ""


class PullFailed(ModelError, code="RYN515", may_be_billed=False):
    """The weights of a model could not be downloaded, or have an unexpected checksum."""

    hint = "Check the package index that pip uses, then try again. No partial download was stored."


class PriceUnknown(ModelError, code="RYN520", may_be_billed=False):
    """A budget limits money, and the price of a model is unknown."""

    hint = "Declare `price` for the model in reyn.yaml, or install the price table: `pip install 'reyn[prices]'`."


class CurrencyUnknown(ModelError, code="RYN521", may_be_billed=False):
    """A price is in a currency that `budgets` does not declare, or a run has a budget in another currency."""

    hint = "Declare the currency under `budgets.currencies` in reyn.yaml, with its value in `budgets.currency`."


class PriceInvalid(ModelError, code="RYN525", may_be_billed=False):
    """A model declares a price or a bound of its usage that is no valid amount, so its calls cannot be budgeted."""

    hint = (
        "Fix `price` or `usage_bound` of the model's class. Prices of a million tokens are from 0 to 9,000,000; "
        "`price` in reyn.yaml replaces the one of a configured class."
    )


class ImageInvalid(ModelError, code="RYN530", may_be_billed=False):
    """An image in a message does not exist, has an unknown format, or cannot be sent."""

    hint = "Use `load_image` with the path of an image file, or an `Image` with data or an HTTP URL."


class ChatStopped(ModelError, StoppedError, code="RYN531"):
    """A turn of a conversation ended without a reply: the model failed, a limit was reached, or a person must decide.

    Attributes:
        run_id: The run.
        status: Its status, such as `failed` or `waiting`.
        history: The conversation with the user's message and the completed part of the turn. While a question is open,
            a new message is not sent, and not part of it.
    """

    hint = "Continue the turn with `resume`, or send a new message. `history` of the error has the user's message."

    def __init__(self, message: str, *, history: Any = (), **stop: Any) -> None:
        super().__init__(message, **stop)
        self.history = history


class AdapterInvalid(ModelError, code="RYN532", exit_code=2, may_be_billed=False):
    """An adapter of an installed package, or a class named `package.module:Class`, cannot be loaded or is no model."""

    hint = "Fix the package or the class, or use another model."


class CircuitOpen(ModelError, code="RYN533", may_be_billed=False, is_transient=True):
    """Calls of an endpoint have failed several times in a row, so Reyn does not call it for a while."""

    hint = "Check the provider's status, wait and try again, or configure a `fallback` for the model."


class ImagesUnsupported(ModelError, code="RYN534", may_be_billed=False):
    """A run has new images in its input, a message, the history or from a hook, and the model reads none."""

    hint = (
        "Use a model that reads images and has `images: true` in its settings. In Python, set "
        "`OpenAICompatible(…, images=True)`, or `reads_images` of your own model."
    )


class EffortRejected(ModelError, code="RYN535", may_be_billed=False):
    """A model cannot think as `effort` says: its adapter has no such setting, or its provider rejects it."""

    hint = (
        "Remove `effort`, or use another value, in the front matter of the phase, in the decorator or in the model's "
        "settings; or use a model that thinks."
    )


class HookFailed(ModelError, code="RYN540", may_be_billed=False):
    """A hook raised an exception, or returned something that cannot change the transcript."""

    hint = "Fix the hook, then continue the run with a retry; the hook is called again."


class SecretRefused(AccessError, ModelError, code="RYN311", may_be_billed=False):
    """The secret is bound to other servers, so it is not sent to this one."""

    hint = "If you trust the server with the secret, bind the secret to its origin."
