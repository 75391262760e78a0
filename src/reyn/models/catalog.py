"""Open a model by its adapter and name. Each adapter is imported on first use.

Adapters from outside the package are entry points of the group `reyn.models`, and classes named `package.module:Class`:
callables that return a model. They are called with a `ModelSetup`, or without arguments if they take none. Whether a
project may load code is decided by `reyn.permissions.trust`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import ModelSettings
from reyn.config.load import REFERENCE, load_attribute
from reyn.config.models import ADAPTER_PACKAGES, ADAPTERS, BUILT_IN_ADAPTERS
from reyn.documents import nearest_hint
from reyn.errors import AdapterInvalid, ModelError, ModelUnknown, ReynError
from reyn.models.keys import ModelKey
from reyn.secrets import Secrets

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from reyn.journal import Journal
    from reyn.models.protocol import Model
    from reyn.models.remote import RemoteModel


def needs_trust(model: str, root: Path) -> str:
    """Return what needs trust about a model that a file of the project names; empty if nothing does.

    Scripts in the project, recorded answers and pulled weights need none. The URL and the key of a model of a server
    are settings of their own; without them, no request is sent.

    Args:
        model: The model, after following aliases.
        root: The project's folder.
    """
    adapter, _, rest = model.partition(":")
    match adapter:
        case "scripted":
            return "" if not rest or _is_below(root, rest) else f"read {rest}"
        case "local":
            from reyn.models.weights import KNOWN_WEIGHTS

            return "" if not rest or rest in KNOWN_WEIGHTS else f"load the model file {rest}"
        case "litellm":
            return f"use credentials of the environment for {model}"
        case built_in if built_in in BUILT_IN_ADAPTERS:
            return ""
        case _ if is_installed(model):
            return f"use the adapter of {model}"
        case _:
            return f"load {model}" if is_reference(model) else ""


def _is_below(root: Path, path: str) -> bool:
    """Return whether a path is written as one below the project. Opening it follows no link that leads out."""
    return os.path.normpath(root / path).startswith(f"{os.path.normpath(root).rstrip('/')}/")


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
        is_known = is_installed(model) or is_reference(model)
    if not is_known:
        if not model:
            raise ModelUnknown("no model is configured")
        server = f"For a model of a server with OpenAI's API, write `openai:{model}`."
        first = nearest_hint(adapter, BUILT_IN_ADAPTERS) if ":" in model else server
        raise ModelUnknown(f"unknown model `{model}`", hint=f"{first} {ModelUnknown.hint}".lstrip())


def open_model(
    name: str,
    settings: ModelSettings,
    root: Path,
    journal: Journal,
    secrets: Callable[[], Secrets],
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

    Raises:
        ModelUnknown: If no adapter matches.
    """
    check_adapter(settings.model)
    adapter, _, rest = settings.model.partition(":")
    match adapter:
        case "scripted":
            from reyn.models.scripted import ScriptedModel

            form = None if settings.answer_form == "auto" else settings.answer_form
            inside = root if _is_below(root, rest) else None
            return ScriptedModel.from_file(root / rest, name, answer_form=form, inside=inside)
        case "recorded":
            from reyn.models.recorded import RecordedModel

            return RecordedModel(journal, rest)
        case "local":
            from reyn.models.local import LocalModel

            return LocalModel.locate(name, rest, settings, root)
        case _ if adapter in BUILT_IN_ADAPTERS:
            return remote_class(adapter)(name, rest, settings, secrets)
        case _:
            return open_plugin(ModelSetup(name, "", settings, root, secrets))


def import_sdk(model: str) -> None:
    """Import the SDK of a model of a server. Its first import can take seconds; `open_model` imports it, too."""
    adapter = model.partition(":")[0]
    if adapter in ADAPTERS:
        remote_class(adapter).import_sdk()


def remote_class(adapter: str) -> type[RemoteModel]:
    """Return the class of an adapter for model servers."""
    found: type[RemoteModel] = getattr(import_module(f"reyn.models.{adapter}"), ADAPTERS[adapter].class_name)
    return found


# -- adapters from outside ----------------------------------------------------------------------------

MODEL_ENTRY_POINTS = "reyn.models"


class ModelSetup(msgspec.Struct, frozen=True):
    """What an adapter from outside is called with.

    Attributes:
        name: The name that the journal records.
        model: The text after the adapter's name: `small` in `acme:small`. Empty for `package.module:Class`.
        settings: The settings from `models`.
        root: The project's folder.
    """

    name: str
    model: str
    settings: ModelSettings
    root: Path
    open_secrets: Callable[[], Secrets]

    def key(self, url: str) -> str | None:
        """Return the key in the settings for a server, or `None` if the settings have none. Do not store it.

        Raises:
            KeyRejected: The secret does not exist, or may not be sent to this server.
        """
        return ModelKey(self.name, self.settings.key, self.open_secrets).resolve(url)


@cache
def installed_adapters() -> Mapping[str, EntryPoint]:
    """Return the adapters of installed packages by name. Loads none; built-in adapters cannot be replaced."""
    from importlib.metadata import entry_points

    points = sorted(entry_points(group=MODEL_ENTRY_POINTS), key=lambda entry: (entry.name, entry.value))
    return {entry.name: entry for entry in reversed(points) if entry.name not in BUILT_IN_ADAPTERS}


def adapter_versions() -> dict[str, str]:
    """Return the adapters that need a package, with its version; empty if it is not installed. Imports none."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for adapter, package in ADAPTER_PACKAGES.items():
        try:
            versions[adapter] = version(package)
        except PackageNotFoundError:
            versions[adapter] = ""
    others = {name: entry.dist for name, entry in installed_adapters().items()}
    return versions | {name: f"{dist.name} {dist.version}" if dist else "unknown" for name, dist in others.items()}


def is_installed(model: str) -> bool:
    """Return whether an installed package has the adapter of a model."""
    adapter = model.partition(":")[0]
    return adapter not in BUILT_IN_ADAPTERS and bool(adapter) and adapter in installed_adapters()


def is_reference(model: str) -> bool:
    """Return whether a model is named as `package.module:Class`.

    `nothing:small` is not: the name of a misspelt adapter must not look like code.
    """
    module, _, path = model.partition(":")
    is_class = "." in module or path.rpartition(".")[2][:1].isupper()
    return module not in BUILT_IN_ADAPTERS and is_class and bool(REFERENCE.fullmatch(model)) and not is_installed(model)


def open_plugin(setup: ModelSetup) -> Model:
    """Open a model of an installed adapter, or one that is named as `package.module:Class`.

    Raises:
        AdapterInvalid: The code cannot be loaded, fails, or returns no model.
    """
    text = setup.settings.model
    if is_installed(text):
        setup = msgspec.structs.replace(setup, model=text.partition(":")[2])
        entry = installed_adapters()[text.partition(":")[0]]
        what = f"adapter `{entry.name}` (`{entry.value}`)"
        return _open(what, entry.load, setup)
    return _open(f"`{text}`", lambda: load_attribute(text, setup.root), setup)


def _open(what: str, load: Callable[[], Any], setup: ModelSetup) -> Model:
    try:
        factory = load()
        model = factory(setup) if _takes_argument(factory) else factory()
    except (KeyboardInterrupt, ModelError):
        raise
    except BaseException as error:
        text = error.message if isinstance(error, ReynError) else f"{type(error).__name__}: {error}"
        hint = nearest_hint(setup.settings.model.partition(":")[0], {*BUILT_IN_ADAPTERS, *installed_adapters()}) or None
        raise AdapterInvalid(f"the model {what} cannot be loaded: {text}", hint=hint) from error
    if not isinstance(getattr(model, "name", None), str) or not inspect.iscoroutinefunction(
        getattr(model, "complete", None)
    ):
        kind = type(model).__name__
        raise AdapterInvalid(f"{what} returned a {kind}, which is no model: it needs `name` and an async `complete`")
    found: Model = model
    return found


def _takes_argument(factory: Any) -> bool:
    """Return whether a callable takes a positional argument."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(parameter.kind in kinds for parameter in inspect.signature(factory).parameters.values())
