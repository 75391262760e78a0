"""List the configured and the pullable models with their availability.

No model is loaded and no server is contacted: a server counts as available if its key exists and may be sent to it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import Config, ModelSettings
from reyn.config.models import ADAPTERS
from reyn.errors import ModelNotInstalled, ModelUnknown, ModelUntrusted, ReynError
from reyn.models.catalog import installed_adapters, is_installed, is_reference, remote_class
from reyn.models.roster import Roster
from reyn.models.weights import DEFAULT_WEIGHTS, find_weights, is_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.journal import Journal
    from reyn.secrets import Secrets


class ModelStatus(msgspec.Struct, frozen=True):
    """A model with its availability.

    Attributes:
        model: Adapter and model, such as `openai:NAME`.
        names: The names that the configuration gives it.
        is_available: Whether nothing on this machine is missing; servers are not contacted.
        modes: Its output modes, the preferred one first.
        why: The reason if it cannot be used.
        details: Further facts, such as `base_url` or `license`.
        code: The code of the error that `why` describes, if there is one.
    """

    model: str
    names: tuple[str, ...]
    is_available: bool
    modes: tuple[str, ...]
    why: str = ""
    details: dict[str, Any] = {}
    code: str = ""


def list_models(
    config: Config,
    root: Path,
    journal: Journal,
    secrets: Secrets,
    untrusted: Mapping[str, str],
) -> list[ModelStatus]:
    """Return the default model, the configured models with their fallbacks, and the pullable models.

    Models that have no effect until the user trusts the project (`untrusted`) are listed as missing.
    """
    roster = Roster(config.models, root, lambda: journal, lambda: secrets, untrusted=untrusted)
    configured: dict[str, tuple[ModelSettings, list[str]]] = {}
    unknown: list[ModelStatus] = []
    queue = [(config.model, "model")] if config.model or "" in untrusted else []
    queue += [(name, name) for name in config.models]
    queue += [(name, name) for name in untrusted if name not in ("", config.model)]
    for name, label in queue:
        try:
            settings = roster.resolve(name)[1]
        except ModelUnknown as error:
            why = f"{error.message}. {error.hint}" if isinstance(error, ModelUntrusted) else error.message
            unknown.append(ModelStatus(name, (label,), is_available=False, modes=(), why=why))
            continue
        labels = configured.setdefault(msgspec.json.encode(settings).decode(), (settings, []))[1]
        labels += [label] if label and label not in labels else []
        seen = {other for other, _ in queue}
        queue += [(other, "") for other in settings.fallback if other not in seen]
    models = []
    for settings, labels in configured.values():
        status = _check(settings, labels, root, journal, secrets)
        models.append(msgspec.structs.replace(status, names=tuple(labels)))
    models += unknown
    if not any(model.model in ("local", f"local:{DEFAULT_WEIGHTS}") for model in models):
        models.append(_check_local(ModelSettings(model="local"), root))
    return models


def _check(
    settings: ModelSettings,
    names: list[str],
    root: Path,
    journal: Journal,
    secrets: Secrets,
) -> ModelStatus:
    """Return the availability of a model."""
    adapter, _, rest = settings.model.partition(":")
    match adapter:
        case "local":
            return _check_local(settings, root)
        case _ if adapter in ADAPTERS:
            name = next((each for each in names if each != "model"), settings.model)
            return _check_remote(name, settings, secrets)
        case "scripted":
            return _status(settings, ("free",), "" if (root / rest).is_file() else f"file not found: `{rest}`")
        case "recorded":
            return _status(settings, ("free",), "" if journal.find(rest) is not None else f"run not found: `{rest}`")
    # A model from outside, whose code is not loaded.
    package = installed_adapters()[adapter].dist if is_installed(settings.model) else None
    is_known = is_installed(settings.model) or is_reference(settings.model)
    details = {"package": f"{package.name} {package.version}"} if package else {}
    return _status(settings, (), "" if is_known else f"unknown adapter `{adapter}`", details)


def _status(
    settings: ModelSettings, modes: tuple[str, ...], why: str, details: dict[str, Any] | None = None, code: str = ""
) -> ModelStatus:
    return ModelStatus(settings.model, (), not why, modes, why, details or {}, code)


def _check_local(settings: ModelSettings, root: Path) -> ModelStatus:
    name = settings.model.partition(":")[2] or DEFAULT_WEIGHTS
    known, path = find_weights(name, root)
    reason = ""
    if path is None or not path.is_file():
        reason = f"the weights `{name}` are not installed" if known else f"file not found: `{name}`"
    elif known and path.stat().st_size != known.bytes:
        reason = f"the weights `{name}` are damaged"
    elif not is_gguf(path):
        reason = f"`{name}` is not a GGUF file"
    elif importlib.util.find_spec("xllamacpp") is None:
        reason = "the extra `local` is not installed: pip install 'reyn[local]'"
    modes = ("grammar", "free") if settings.mode == "auto" else (settings.mode,)
    details = {"about": known.about, "license": known.license} if known else {}
    return _status(settings, modes, reason, details, ModelNotInstalled.code if reason else "")


def _check_remote(name: str, settings: ModelSettings, secrets: Secrets) -> ModelStatus:
    adapter, _, rest = settings.model.partition(":")
    try:
        model = remote_class(adapter)(name, rest, settings, lambda: secrets, is_listed=True)
    except ReynError as error:
        return _status(settings, (), f"{error.message}: {error.hint}", code=error.code)
    details, reason, code = model.describe(), "", ""
    try:
        model.check_key()
    except ReynError as error:
        reason, code = f"{error.message}. {error.hint}", error.code
    return _status(settings, tuple(details.pop("modes")), reason, details, code)
