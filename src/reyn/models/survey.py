"""Which models are there? What the operator configured and what can be pulled becomes a list: can it be had, what can
it do. Servers are asked for their list of models, the ones that are configured and no others."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import ModelSettings
from reyn.errors import ReynError
from reyn.models.weights import DEFAULT, KNOWN, weights_path

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.config import Config
    from reyn.models.openai import OpenAIModel

_SECONDS = 5


class Surveyed(msgspec.Struct, frozen=True):
    """One model: what it is, under which names it is known here, whether it can be had."""

    model: str
    names: tuple[str, ...]
    is_reachable: bool
    modes: tuple[str, ...]
    why: str = ""
    details: dict[str, Any] = {}


async def survey(config: Config, root: Path) -> list[Surveyed]:
    """The default model and the configured ones first, then what can be pulled."""
    asked: dict[str, tuple[ModelSettings, list[str]]] = {}
    for name, what in config.models.items():
        settings = what if isinstance(what, ModelSettings) else ModelSettings(model=what)
        if settings.model not in config.models:
            asked.setdefault(msgspec.json.encode(settings).decode(), (settings, []))[1].append(name)
    default = config.model
    if default and default not in config.models:
        settings = ModelSettings(model=default)
        asked.setdefault(msgspec.json.encode(settings).decode(), (settings, []))[1].append("model")
    found = list(await asyncio.gather(*(_look(settings, names, root) for settings, names in asked.values())))
    if not any(model.model in ("local", f"local:{DEFAULT}") for model in found):
        found.append(_local(ModelSettings(model="local"), [], root))
    return found


async def _look(settings: ModelSettings, names: list[str], root: Path) -> Surveyed:
    adapter, _, rest = settings.model.partition(":")
    match adapter:
        case "local":
            return _local(settings, names, root)
        case "openai":
            return await _openai(settings, names, rest)
        case "scripted":
            is_here = (root / rest).is_file()
            why = "" if is_here else f"no file `{rest}`"
            return Surveyed(settings.model, tuple(names), is_here, ("free",), why)
        case "recorded":
            return Surveyed(settings.model, tuple(names), is_reachable=True, modes=("free",))
    why = "no adapter has that name"
    return Surveyed(settings.model, tuple(names), is_reachable=False, modes=(), why=why)


def _local(settings: ModelSettings, names: list[str], root: Path) -> Surveyed:
    words = settings.model.partition(":")[2] or DEFAULT
    known = KNOWN.get(words)
    path = weights_path(known) if known else root / words
    why = ""
    if not path.is_file():
        why = f"not here; `reyn models pull {words}` fetches it" if known else f"no file `{words}`"
    elif importlib.util.find_spec("xllamacpp") is None:
        why = "the extra `local` is not installed: pip install 'reyn[local]'"
    modes = ("free",) if settings.mode == "free" else ("grammar",)
    details: dict[str, Any] = {"about": known.about, "license": known.license} if known else {}
    return Surveyed(settings.model, tuple(names), not why, modes, why, details)


async def _openai(settings: ModelSettings, names: list[str], model: str) -> Surveyed:
    from reyn.models.openai import OpenAIModel
    from reyn.secrets import open_secrets

    secrets = open_secrets()
    try:
        opened = OpenAIModel(model, model, settings, lambda: secrets)
    except ReynError as error:
        return Surveyed(settings.model, tuple(names), is_reachable=False, modes=(), why=error.message)
    why = secrets.scrubber.scrub(await _fault(opened, model))
    details = opened.describe()
    return Surveyed(settings.model, tuple(names), not why, tuple(details.pop("modes")), why, details)


async def _fault(opened: OpenAIModel, model: str) -> str:
    """Why a server cannot be used; empty if it knows the model, or does not say which it knows."""
    try:
        async with asyncio.timeout(_SECONDS):
            listed = await opened.listed()
    except ReynError as error:
        return error.message
    except TimeoutError:
        return f"no answer within {_SECONDS} seconds"
    finally:
        await opened.aclose()
    return "" if not listed or model in listed else f"the server has no model `{model}`"
