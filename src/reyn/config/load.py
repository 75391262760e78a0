"""Files, environment and flags become one `Config`, later ones over earlier ones; all that is wrong is told at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.config.values import MODES, ONLY_FOR, Config, FileZones, LimitKeys, ModelSettings, Sizes
from reyn.documents import Document, DocumentError, check_keys, nearest, parse_yaml, read_text
from reyn.errors import ConfigInvalid, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FILES = ("reyn.yaml", "reyn.local.yaml")
PREFIX = "REYN_"
SECRETS = "REYN_SECRET_"
"""Variables that begin with this are read by `reyn.secrets`, and by nobody else."""
CODE = "RYN701"
_TEXTS = ("model", "output_language")
"""Keys whose variables are taken as they are; the others are read as YAML."""
_SECTIONS: dict[str, type[msgspec.Struct]] = {"limits": LimitKeys, "sizes": Sizes, "files": FileZones}


def load_config(root: Path, flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration of the project at `root`. A flag that is `None` was not given."""
    findings: list[Finding] = []
    merged: dict[str, Any] = {}
    documents = [document for document in read_documents(root, environ, findings) if document.value is not None]
    for document in documents:
        wrong = _check(document)
        findings += wrong
        if not wrong:
            merged = _merge(merged, document.value)
    findings = findings or _check_joined(merged, documents)
    merged |= {key: value for key, value in (flags or {}).items() if value is not None}
    if not findings:
        try:
            return msgspec.convert(merged, Config)
        except msgspec.ValidationError as error:
            findings.append(Finding("flags", 1, 1, CODE, str(error)))
    raise ConfigInvalid("the configuration has errors:", findings)


def read_documents(root: Path, environ: Mapping[str, str] | None, findings: list[Finding]) -> list[Document]:
    """What is set in files and in the environment, the weakest first; what cannot be read is added to the findings."""
    environ = os.environ if environ is None else environ
    found = []
    for name in FILES:
        path = root / name
        if os.path.lexists(path):
            try:
                found.append(parse_yaml(read_text(path, name), name))
            except DocumentError as error:
                findings.append(error.finding)
    keys = {field.name.upper(): field.name for field in msgspec.structs.fields(Config)}
    for variable, text in sorted(environ.items()):
        if variable.startswith(PREFIX) and not variable.startswith(SECRETS) and text:
            word = variable.removeprefix(PREFIX)
            key = keys.get(word, word.lower())
            try:
                value = text if key in _TEXTS else parse_yaml(text, variable).value
            except DocumentError as error:
                findings.append(error.finding)
                continue
            found.append(Document(variable, {key: value}, {}))
    return found


def says(document: Document, way: tuple[str, ...]) -> bool:
    """Whether a place says something of a key."""
    value = document.value
    for word in way:
        if not isinstance(value, dict) or word not in value:
            return False
        value = value[word]
    return True


def _check(document: Document) -> list[Finding]:
    """All of one place that is not understood."""
    findings = _check_keys(document, Config, passed_over=(*_SECTIONS, "models"))
    if isinstance(document.value, dict):
        for name in _SECTIONS.keys() & document.value.keys():
            findings += _check_keys(document.part(name), _SECTIONS[name])
        if "models" in document.value:
            findings += _check_models(document.part("models"))
    return findings


def _check_models(models: Document) -> list[Finding]:
    if not isinstance(models.value, dict):
        return [models.finding(CODE, "`models` must be a mapping of names to models")]
    findings = []
    for name, model in models.value.items():
        if isinstance(model, dict):
            findings += _check_keys(models.part(name), ModelSettings)
        elif not isinstance(model, str):
            findings.append(models.finding(CODE, f"`{name}` must be the name of a model, or its settings", name))
    return findings


def _check_keys(document: Document, shape: type[msgspec.Struct], passed_over: tuple[str, ...] = ()) -> list[Finding]:
    """What is missing in one place may be in another."""
    if document.prefix and not isinstance(document.value, dict):
        return [document.finding(CODE, f"`{document.prefix[-1]}` must be a mapping of keys to values")]
    return check_keys(document, shape, unknown=CODE, missing="", wrong=CODE, passed_over=passed_over)


class _Fault(NamedTuple):
    """What is wrong with a model once all places are joined, and where."""

    way: tuple[str, ...]
    message: str
    fix: str = ""


def _check_joined(merged: dict[str, Any], documents: list[Document]) -> list[Finding]:
    models = merged.get("models", {})
    findings = []
    for name, settings in models.items():
        for fault in _faults(name, settings, models) if isinstance(settings, dict) else ():
            last = next(document for document in reversed(documents) if says(document, fault.way))
            findings.append(last.finding(CODE, fault.message, *fault.way, fix=fault.fix))
    return findings


def _faults(name: str, settings: dict[str, Any], models: dict[str, Any]) -> Iterator[_Fault]:
    """Settings are those of some model, and of its kind; whoever takes its place is one, too."""
    place = ("models", name)
    if "model" not in settings:
        yield _Fault(place, f"`models.{name}` names no `model`", "Add `model:`, as in `model: openai:NAME`.")
        return
    adapter = settings["model"].partition(":")[0]
    for key, only in ONLY_FOR.items():
        if settings.get(key) is not None and adapter in MODES and adapter != only:
            yield _Fault((*place, key), f"`{key}` is for `{only}` alone", "Leave it out.")
    mode = settings.get("mode", "auto")
    if mode not in MODES.get(adapter, (mode,)):
        ways = " or ".join(f"`{way}`" for way in MODES[adapter])
        yield _Fault((*place, "mode"), f"`{adapter}` knows no mode `{mode}`", f"Write {ways}.")
    for other in settings.get("fallback", ()):
        if other not in models and ":" not in other and other != "local":
            yield _Fault((*place, "fallback"), f"no model is called `{other}`", nearest(other, models))


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key; anything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
