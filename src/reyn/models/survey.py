"""Which models are there? What the operator configured and what can be pulled becomes a list: can it be had, what can
it do. Servers are asked for their list of models, the ones that are configured and no others."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import ModelSettings
from reyn.errors import ModelUnknown, ReynError
from reyn.models.roster import Roster
from reyn.models.weights import DEFAULT, KNOWN, is_gguf, weights_path
from reyn.secrets import open_secrets

if TYPE_CHECKING:
    from reyn.config import Config
    from reyn.journal import Journal
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


async def survey(config: Config, root: Path, journal: Journal) -> list[Surveyed]:
    """The default model and the configured ones, with those that may take their place; then what can be pulled."""
    roster = Roster(config.models, root, lambda: journal, open_secrets)
    asked: dict[str, tuple[ModelSettings, list[str]]] = {}
    unknown: list[Surveyed] = []
    wanted = [(config.model, "model")] if config.model else []
    wanted += [(name, name) for name in config.models]
    for name, known_as in wanted:
        try:
            settings = roster.resolve(name)[1]
        except ModelUnknown as error:
            unknown.append(Surveyed(name, (known_as,), is_reachable=False, modes=(), why=error.message))
            continue
        names = asked.setdefault(msgspec.json.encode(settings).decode(), (settings, []))[1]
        names += [known_as] if known_as and known_as not in names else []
        seen = {other for other, _ in wanted}
        wanted += [(other, "") for other in settings.fallback if other not in seen]
    looked = (_look(settings, names, root, journal) for settings, names in asked.values())
    found = [*await asyncio.gather(*looked), *unknown]
    if not any(model.model in ("local", f"local:{DEFAULT}") for model in found):
        found.append(_local(ModelSettings(model="local"), [], root))
    return found


async def _look(settings: ModelSettings, names: list[str], root: Path, journal: Journal) -> Surveyed:
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
            is_here = journal.find(rest) is not None
            why = "" if is_here else f"no run `{rest}`"
            return Surveyed(settings.model, tuple(names), is_here, ("free",), why)
    why = "no adapter has that name"
    return Surveyed(settings.model, tuple(names), is_reachable=False, modes=(), why=why)


def _local(settings: ModelSettings, names: list[str], root: Path) -> Surveyed:
    words = settings.model.partition(":")[2] or DEFAULT
    known = KNOWN.get(words)
    path = weights_path(known) if known else root / Path(words).expanduser()
    why = ""
    if not path.is_file():
        why = f"not here; `reyn models pull {words}` fetches it" if known else f"no file `{words}`"
    elif known and path.stat().st_size != known.bytes:
        why = f"damaged; `reyn models pull {words}` fetches it anew"
    elif not is_gguf(path):
        why = f"`{words}` is no GGUF file"
    elif importlib.util.find_spec("xllamacpp") is None:
        why = "the extra `local` is not installed: pip install 'reyn[local]'"
    modes = ("grammar", "free") if settings.mode == "auto" else (settings.mode,)
    details: dict[str, Any] = {"about": known.about, "license": known.license} if known else {}
    return Surveyed(settings.model, tuple(names), not why, modes, why, details)


async def _openai(settings: ModelSettings, names: list[str], model: str) -> Surveyed:
    from reyn.models.openai import OpenAIModel

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
