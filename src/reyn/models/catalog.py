"""Open a model by its adapter and name. Each adapter is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.config.models import BUILT_IN_ADAPTERS
from reyn.errors import ModelUnknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reyn.config import ModelSettings
    from reyn.journal import Journal
    from reyn.models.protocol import Model
    from reyn.models.remote import RemoteModel
    from reyn.secrets import Secrets

INSTANT_ADAPTERS = ("scripted", "recorded")
"""Adapters whose models declare `takes_time = False`; known here so that their modules need not be imported."""


def check_adapter(model: str) -> None:
    """Check that an adapter matches a model's name. Opens nothing.

    Raises:
        ModelUnknown: None does.
    """
    adapter, _, rest = model.partition(":")
    if adapter in BUILT_IN_ADAPTERS:
        is_known = bool(rest) or adapter == "local"
    else:
        from reyn.models.plugins import is_installed, is_reference

        is_known = is_installed(model) or is_reference(model)
    if not is_known:
        if not model:
            raise ModelUnknown("no model is configured")
        prefix = "" if ":" in model else f"For a model of a server with OpenAI's API, write `openai:{model}`. "
        raise ModelUnknown(f"unknown model `{model}`", hint=f"{prefix}{ModelUnknown.hint}")


def open_model(
    name: str,
    settings: ModelSettings,
    root: Path,
    journal: Journal,
    secrets: Callable[[], Secrets],
    may_bind: Callable[[str, str], bool],
) -> Model:
    """Open the model that `settings.model` names.

    It is `scripted:FILE` (relative to the project), `recorded:RUN`, `local`, `local:FILE.gguf`, or a model of a server:
    `openai:NAME`, `anthropic:NAME`, `gemini:NAME` or `litellm:PROVIDER/NAME`. Other names are adapters of installed
    packages (`ADAPTER:NAME`), or classes (`package.module:Class`).

    Args:
        name: The name that the journal records.
        settings: The model and its settings.
        root: The project's folder.
        journal: The journal for `recorded` models.
        secrets: Opens the secrets; called when a key is needed.
        may_bind: Whether the first use of a secret may bind it to an origin.

    Raises:
        ModelUnknown: If no adapter matches.
    """
    check_adapter(settings.model)
    adapter, _, rest = settings.model.partition(":")
    match adapter:
        case "scripted":
            from reyn.models.scripted import ScriptedModel

            form = None if settings.answer_form == "auto" else settings.answer_form
            return ScriptedModel.from_file(root / rest, name, answer_form=form)
        case "recorded":
            from reyn.models.recorded import RecordedModel

            return RecordedModel(journal, rest)
        case "local":
            from reyn.models.local import LocalModel

            return LocalModel.locate(name, rest, settings, root)
        case _ if adapter in BUILT_IN_ADAPTERS:
            return remote_class(adapter)(name, rest, settings, secrets, may_bind)
        case _:
            from reyn.models.plugins import ModelSetup, open_plugin

            return open_plugin(ModelSetup(name, "", settings, root, secrets, may_bind))


def import_sdk(model: str) -> None:
    """Import the SDK of a model of a server. Its first import can take seconds; `open_model` imports it, too."""
    adapter = model.partition(":")[0]
    if adapter in BUILT_IN_ADAPTERS and adapter not in (*INSTANT_ADAPTERS, "local"):
        remote_class(adapter).import_sdk()


def remote_class(adapter: str) -> type[RemoteModel]:
    """Return the class of an adapter for model servers."""
    match adapter:
        case "openai":
            from reyn.models.openai import OpenAIModel

            return OpenAIModel
        case "anthropic":
            from reyn.models.anthropic import AnthropicModel

            return AnthropicModel
        case "gemini":
            from reyn.models.gemini import GeminiModel

            return GeminiModel
        case "litellm":
            from reyn.models.litellm import LiteLLMModel

            return LiteLLMModel
    raise AssertionError(f"`{adapter}` has no implementation")
