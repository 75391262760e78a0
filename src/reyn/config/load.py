"""Load the user's models, `reyn.yaml`, `reyn.local.yaml`, `REYN_*` variables and flags, in this order.

Later sources override earlier ones key by key, and `explain_config` shows which one decides a key. All errors are
collected and raised as one `ConfigInvalid`. Whether the project may set
what its files set is decided by `reyn.permissions.trust`.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.config.models import ADAPTERS_OF_SETTING, MODES, without_credentials
from reyn.config.user import check_document, user_config
from reyn.config.values import Config
from reyn.documents import (
    Codes,
    Document,
    DocumentError,
    Severity,
    check_keys,
    fields_of,
    nearest,
    nearest_hint,
    parse_yaml,
    read_text,
)
from reyn.errors import ConfigInvalid, Finding, ModuleUnloadable, SettingUnknown
from reyn.errors.codes import CONFIG_INVALID
from reyn.folders import DEFINITIONS
from reyn.secrets.stores import SECRET_PREFIX

if TYPE_CHECKING:
    from pathlib import Path


CONFIG_FILES = ("reyn.yaml", "reyn.local.yaml")
ENV_PREFIX = "REYN_"
FLAGS = "flags"
_PLAIN_TEXT_KEYS = ("model", "output_language", "journal", "engine")
"""Keys whose variables hold plain text; other variables hold YAML."""


class ConfigSources(msgspec.Struct, frozen=True):
    """The sources of a configuration, lowest precedence first. Each source is valid, and so is the merged
    configuration."""

    documents: tuple[Document, ...]

    @property
    def merged(self) -> dict[str, Any]:
        """Return what all sources set, as plain values."""
        return _merge_all(self.documents)

    @property
    def operator(self) -> dict[str, Any]:
        """Return the settings of the operator: of all sources except the files of the project."""
        return _merge_all(document for document in self.documents if document.file not in CONFIG_FILES)

    def last(self, *path: str) -> Document | None:
        """Return the source that decides a key: the last one that sets it."""
        return next((document for document in reversed(self.documents) if sets_key(document, path)), None)

    def place(self, *path: str | int) -> str:
        """Return where a key is set, as `reyn.yaml:3` or as the name of a variable; empty if it is not set."""
        keys = tuple(step for step in path if isinstance(step, str))
        document = self.last(*keys)
        if document is None:
            return ""
        return f"{document.file}:{document.at(*path).line}" if document.marks else document.file


def load_config(root: Path, flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Load the configuration of the project at `root` as its sources set it, whether or not the project is trusted.

    Args:
        root: The project's folder.
        flags: Values of the caller or the command line, by key; `None` is `null`.
        environ: Environment variables; those of the process by default.

    Raises:
        ConfigInvalid: Lists every error with its position.
    """
    return msgspec.convert(load_sources(root, flags, environ).merged, Config)


def load_sources(
    root: Path, flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> ConfigSources:
    """Read and check all sources of a project's configuration; see `load_config`."""
    findings: list[Finding] = []
    documents = _read_documents(root, environ, findings)
    documents.append(Document(FLAGS, dict(flags or {}), {}))
    findings += [finding for document in documents for finding in check_document(document, Config)]
    if not findings:
        merged = _merge_all(documents)
        findings = _check_merged(merged, documents) or _check_complete(merged, documents)
    if findings:
        raise ConfigInvalid("the configuration has errors:", findings)
    return ConfigSources(tuple(documents))


def _read_documents(root: Path, environ: Mapping[str, str] | None, findings: list[Finding]) -> list[Document]:
    """Read files and variables, lowest precedence first; add those that cannot be read to `findings`."""
    environ = os.environ if environ is None else environ
    documents = []
    own = user_config(environ).document()
    if own is not None and "models" in own.value:
        documents.append(Document(own.file, {"models": own.value["models"]}, own.marks))
    for name in CONFIG_FILES:
        path = root / name
        if os.path.lexists(path):
            try:
                document = parse_yaml(read_text(path, name, inside=root, below=DEFINITIONS), name)
            except DocumentError as error:
                findings.append(error.finding)
                continue
            if document.value is not None:  # an empty file
                documents.append(document)
    keys = {field.name.upper(): field.name for field in fields_of(Config)}
    for variable, text in sorted(environ.items()):
        if variable.startswith(ENV_PREFIX) and not variable.startswith(SECRET_PREFIX) and text:
            suffix = variable.removeprefix(ENV_PREFIX)
            key = keys.get(suffix, suffix.lower())
            try:
                value = text if key in _PLAIN_TEXT_KEYS else parse_yaml(text, variable).value
            except DocumentError as error:
                findings.append(error.finding)
                continue
            documents.append(Document(variable, {key: value}, {}))
    return documents


def sets_key(document: Document, path: tuple[str, ...]) -> bool:
    """Return whether a source sets a key."""
    value = document.value
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


class _Fault(NamedTuple):
    """An error in the merged settings, and the key that it is about."""

    path: tuple[str, ...]
    message: str
    fix: str = ""


def _check_merged(merged: dict[str, Any], documents: list[Document]) -> list[Finding]:
    """Check the settings of each model, and the budgets; report an error where the last source sets the key."""
    models = merged.get("models", {})
    faults = [
        fault
        for name, settings in models.items()
        if isinstance(settings, dict)
        for fault in (*_model_faults(name, settings, models), *_price_faults(name, settings, merged))
    ]
    findings = []
    for fault in (*faults, *_budget_faults(merged)):
        last = next(document for document in reversed(documents) if sets_key(document, fault.path))
        findings.append(last.finding(CONFIG_INVALID, fault.message, *fault.path, fix=fault.fix))
    return findings


class _Merged(Document, frozen=True):
    """All sources together. A finding is reported where the last source sets the key, or the nearest key above it."""

    sources: tuple[Document, ...] = ()

    def finding(
        self, code: str, message: str, *path: str | int, fix: str = "", severity: Severity = "error"
    ) -> Finding:
        for end in range(len(path), 0, -1):
            keys = tuple(str(step) for step in path[:end])
            for source in reversed(self.sources):
                if sets_key(source, keys):
                    return source.finding(code, message, *path[:end], fix=fix, severity=severity)
        return self.sources[-1].finding(code, message, fix=fix, severity=severity)


def _check_complete(merged: dict[str, Any], documents: list[Document]) -> list[Finding]:
    """Check what a single source need not have: required keys, and keys that exclude or require each other."""
    try:
        msgspec.convert(merged, Config)
    except msgspec.ValidationError:
        return check_keys(
            _Merged("", merged, {}, sources=tuple(documents)),
            Config,
            Codes(CONFIG_INVALID, CONFIG_INVALID, missing=CONFIG_INVALID),
        )
    return []


def _price_faults(name: str, settings: dict[str, Any], merged: dict[str, Any]) -> Iterator[_Fault]:
    """Find a price that is incomplete, or in a currency that the project does not declare."""
    price = settings.get("price")
    if not isinstance(price, dict):
        return
    path = ("models", name, "price")
    for key in ("input", "output"):
        if key not in price:
            fix = f"Add `{key}:`, the price of a million tokens; 0 if they cost nothing."
            yield _Fault(path, f"`models.{name}.price` has no `{key}`", fix)
    budgets = merged.get("budgets", {})
    declared = {budgets.get("currency", "USD"), *budgets.get("currencies", {})}
    currency = price.get("currency")
    if currency is not None and currency not in declared:
        fix = f"Add its value to `budgets.currencies`: `{{{currency}: 1.1}}`."
        yield _Fault((*path, "currency"), f"`models.{name}.price` is in {currency}, which is not declared", fix)


def _budget_faults(merged: dict[str, Any]) -> Iterator[_Fault]:
    """Find a currency that is converted to itself, and a time zone that does not exist."""
    budgets = merged.get("budgets", {})
    own = budgets.get("currency", "USD")
    if own in budgets.get("currencies", {}):
        message = f"`budgets.currencies` has a value for {own}, which is the currency of the budgets"
        yield _Fault(("budgets", "currencies", own), message, f"Remove `{own}`.")
    zone = budgets.get("timezone", "UTC")
    if zone != "UTC" and not _is_zone(zone):
        message = f"there is no time zone `{zone}` on this machine"
        yield _Fault(("budgets", "timezone"), message, "Use `UTC`, or a name such as `Europe/Berlin`.")


def _is_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _model_faults(name: str, settings: dict[str, Any], models: dict[str, Any]) -> Iterator[_Fault]:
    path = ("models", name)
    if "model" not in settings:
        yield _Fault(path, f"`models.{name}` has no `model`", "Add `model:`, for example `model: openai:NAME`.")
        return
    adapter = settings["model"].partition(":")[0]
    for key, owners in ADAPTERS_OF_SETTING.items():
        if settings.get(key) is not None and adapter in MODES and adapter not in owners:
            message = f"`models.{name}.{key}` does not apply to `{adapter}` models"
            yield _Fault((*path, key), message, f"Remove `{key}`.")
    if settings.get("answer_form") == "tools" and adapter == "local":
        message = "`local` models have no native tool calling"
        yield _Fault((*path, "answer_form"), message, "Use `short`.")
    mode = settings.get("mode", "auto")
    if mode not in MODES.get(adapter, (mode,)):
        choices = " or ".join(f"`{choice}`" for choice in MODES[adapter])
        yield _Fault((*path, "mode"), f"`{adapter}` models have no mode `{mode}`", f"Use {choices}.")
    if adapter == "litellm" and settings.get("key") is not None and settings.get("base_url") is None:
        message = "a `litellm` model with a `key` needs a `base_url`"
        yield _Fault((*path, "key"), message, "Add the URL of the server that may receive the key.")
    for other in settings.get("fallback", ()):
        if other not in models and ":" not in other and other != "local":
            message = f"`models.{name}.fallback` names an unknown model `{other}`"
            yield _Fault((*path, "fallback"), message, nearest(other, models))


def _merge_all(documents: Iterable[Document]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for document in documents:
        merged = _merge(merged, document.value)
    return merged


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge mappings key by key; replace other values. Rules are added to each other, so that no `deny` is lost."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if key == "permissions" and isinstance(old, dict) and isinstance(value, dict):
            merged[key] = merge_rules(old, value)
            continue
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def merge_rules(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Add the rules of two sources to each other."""
    merged = dict(below)
    for capability, rules in above.items():
        if capability in merged:
            sources = (merged[capability], rules)
            merged[capability] = [
                rule for source in sources for rule in (source if isinstance(source, list) else [source])
            ]
        else:
            merged[capability] = rules
    return merged


def overlay_config(config: Config, settings: Mapping[str, Any], rules: dict[str, Any]) -> Config:
    """Return a configuration with other settings, and with further permission rules."""
    return msgspec.structs.replace(config, **settings, permissions=merge_rules(config.permissions, rules))


# -- origins of settings ---------------------------------------------------------------------------------------


class Setting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A setting with its origin. The key of a nested setting is its path, such as `limits.tokens`.

    Attributes:
        key: The key.
        value: The value that is in effect.
        origin: The source that decides it.
        ignored: What that source sets and what has no effect, because the project is not trusted.
    """

    key: str
    value: Any
    origin: str
    ignored: tuple[str, ...] = ()


def explain_config(
    sources: ConfigSources, config: Config | None = None, ignored: Mapping[str, Sequence[str]] | None = None
) -> list[Setting]:
    """Return every setting with the source that decides it.

    Args:
        sources: The sources of the configuration.
        config: The configuration in effect; by default the settings of the sources.
        ignored: The settings without effect, by key.
    """
    effective = msgspec.to_builtins(config or msgspec.convert(sources.merged, Config))
    for key in ("journal", "engine"):
        effective[key] = without_credentials(effective[key])
    rest = {key: tuple(texts) for key, texts in (ignored or {}).items()}
    settings = [
        Setting(".".join(path), value, _origin(path, sources), rest.pop(".".join(path), ()))
        for path, value in _leaves(effective)
    ]
    # What is ignored as a whole has no value. The keys of `permissions` contain dots themselves.
    settings += [Setting(key, None, _origin(tuple(key.split(".", 1)), sources), texts) for key, texts in rest.items()]
    return settings


def select_settings(settings: list[Setting], key: str) -> list[Setting]:
    """Return the setting with a key, or all settings below it.

    Raises:
        SettingUnknown: If there is no such key.
    """
    selected = [setting for setting in settings if setting.key == key or setting.key.startswith(f"{key}.")]
    if not selected:
        known = {setting.key for setting in settings} | {setting.key.partition(".")[0] for setting in settings}
        raise SettingUnknown(f"no setting `{key}`", hint=nearest_hint(key, known) or None)
    return selected


def _leaves(value: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, (*path, key))
        else:
            yield (*path, key), inner


def _origin(path: tuple[str, ...], sources: ConfigSources) -> str:
    """Return the last source that sets a key: it takes precedence."""
    source = sources.last(*path)
    if source is None:
        return "default"
    return "flag" if source.file == FLAGS else sources.place(*path)


# -- Python objects that the configuration or the command line names ---------------------------------------------

_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
REFERENCE = re.compile(rf"{_NAME}:{_NAME}")


def load_attribute(name: str, *folders: Path) -> Any:
    """Import a module and return one of its attributes.

    Args:
        name: Module and attribute, as `package.module:attribute`.
        *folders: Where the module may be, after the installed ones: files in these folders replace no installed module.

    Raises:
        ModuleUnloadable: The module cannot be imported, or has no such attribute.
    """
    module_name, _, path = name.partition(":")
    sys.path += [folder for folder in dict.fromkeys(map(str, folders)) if folder not in sys.path]
    importlib.invalidate_caches()
    try:
        value: Any = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModuleUnloadable(f"cannot import `{module_name}`: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        if not hasattr(value, part):
            raise ModuleUnloadable(f"module `{module_name}` has no `{path}`")
        value = getattr(value, part)
    return value
