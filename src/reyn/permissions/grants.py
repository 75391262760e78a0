"""List what the files of a project name that needs trust, from the trust class of each key.

`reyn.documents.trust_classes` defines the classes; the structs of the keys declare them. A setting that the operator
makes too, by the user configuration, a variable or an option, is the operator's. Skills and cases have no key that
needs trust: what they request is granted by rules of the operator, and their code runs in sandboxes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_origin

import msgspec

from reyn.config import Config, ModelSettings
from reyn.config.environments import EnvironmentSettings
from reyn.config.load import CONFIG_FILES, ConfigSources, merge_rules
from reyn.config.models import ADAPTERS, without_credentials
from reyn.config.servers import SEARCH_URLS, McpServer, NotifySettings, SearchSettings
from reyn.config.values import FileZones
from reyn.documents import Document, TrustClass, classes_of, fields_of, struct_in
from reyn.errors import OriginInvalid, ReynError
from reyn.journal import digest
from reyn.models.catalog import needs_trust
from reyn.permissions.paths import AccessMode, PathPattern, must_spell
from reyn.secrets.handles import origin_of
from reyn.skills.agents import Agents

if TYPE_CHECKING:
    from pathlib import Path

    from msgspec.structs import FieldInfo

    from reyn.config.user import UserConfig

    Keys = tuple[str, ...]


class AccessGrant(msgspec.Struct, frozen=True):
    """One setting of a project that grants access, and therefore needs trust.

    Attributes:
        kind: A file zone, a permission, a right of the sandbox, a secret, a server, or code to load.
        key: The key of the configuration, such as `files.write`.
        text: A description of the access.
        setting: What the user decides about, as data: a description may look like that of another setting.
        place: Where it is set, such as `reyn.yaml:3`.
        pair: The handle of a secret, and the origin that it would be sent to. The handle of a server without a key is
            empty.
        unit: The path of the setting that is ignored as a whole without trust.
    """

    kind: Literal["zone", "permission", "right", "secret", "server", "code"]
    key: str
    text: str
    setting: Any
    place: str
    pair: tuple[str, str] | None = None
    unit: tuple[str, ...] = ()

    @property
    def is_agents(self) -> bool:
        """Whether the file of an agent names it, not the configuration."""
        return self.kind == "code" and not self.unit

    def is_bound(self, own: UserConfig) -> bool:
        """Return whether the user has bound the secret, or any secret if there is no key, to the origin."""
        if self.pair is None:
            return False
        handle, origin = self.pair
        bound = own.secrets.get(handle, ()) if handle else [one for origins in own.secrets.values() for one in origins]
        return origin in map(origin_of, bound)


def project_grants(sources: ConfigSources, root: Path) -> tuple[AccessGrant, ...]:
    """Return everything that the files of a project name and that needs trust."""
    configured = _ConfiguredGrants(sources, root)
    return (*configured.section(Config, ()), *_agent_grants(root, configured.models))


def without_trust(sources: ConfigSources, ignored: tuple[AccessGrant, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration without what is ignored, and the permission rules that are.

    The operator's own value of a setting applies instead, or the default.
    """
    merged = sources.merged
    for grant in ignored:
        if grant.kind == "zone":
            access: Any = grant.unit[-1]
            narrow = [text for text in merged["files"][access] if not _widens(text, access)]
            merged = _replaced(merged, grant.unit, narrow)
        elif grant.unit:
            merged = _replaced(merged, grant.unit, _operator_value(sources, grant.unit))
    rules, removed = _split_rules(sources)
    return (merged | {"permissions": rules} if removed else merged), removed


def _operator_value(sources: ConfigSources, path: Keys) -> Any:
    """Return what the operator sets; `None` if that is nothing, or only a part of what the project sets."""
    value = value_at(sources.operator, path)
    nested = value
    for key in reversed(path):
        nested = {key: nested}
    try:
        msgspec.convert(nested, Config)
    except msgspec.ValidationError:
        return None
    return value


def value_at(merged: Any, path: Keys) -> Any:
    """Return the value of a key; `None` if it is not set."""
    for step in path:
        merged = merged.get(step) if isinstance(merged, dict) else None
    return merged


def _replaced(merged: dict[str, Any], path: Keys, value: Any) -> dict[str, Any]:
    """Return a mapping with another value of a key, or without the key if the value is `None`."""
    first, *rest = path
    inner = _replaced(merged[first], tuple(rest), value) if rest else value
    return {key: one for key, one in merged.items() if key != first} | ({} if inner is None else {first: inner})


# -- the configuration ----------------------------------------------------------------------------------------


class _ConfiguredGrants:
    """Walks the keys of the configuration by their trust classes."""

    def __init__(self, sources: ConfigSources, root: Path) -> None:
        self._sources = sources
        self._root = root
        self._merged, self._operator = sources.merged, sources.operator
        self.models: Mapping[str, Any] = self._merged.get("models", {})
        self._operator_pairs = set(_endpoints(self._operator))
        self._operator_origins = {origin for _, origin in self._operator_pairs}

    def section(self, shape: type[msgspec.Struct], path: Keys) -> Iterator[AccessGrant]:
        """Yield the grants of the keys of a mapping that the project sets."""
        classes = classes_of(shape)
        for field in fields_of(shape):
            where = (*path, field.name)
            value = value_at(self._merged, where)
            last = self._sources.last(*where)
            is_null = (
                value is None and classes[field.name] == "limit" and last is not None and last.file in CONFIG_FILES
            )
            if is_null or (value is not None and self._is_project(*where)):
                yield from self._key(classes[field.name], where, field, value)

    def _key(self, kind: TrustClass, path: Keys, field: FieldInfo, value: Any) -> Iterable[AccessGrant]:
        """Return the grants of one key, by its class."""
        match kind:
            case "plain":
                return ()
            case "section":
                shape = struct_in(field.type)
                return self.section(shape, path) if shape and get_origin(field.type) is not dict else ()
            case "entry":
                is_mapping = get_origin(field.type) is dict
                entries = [((*path, name), one) for name, one in value.items()] if is_mapping else [(path, value)]
                return self._entries(entries, field)
            case "model":
                return self._model(path)
            case "code":
                return (
                    self._grant("code", path, f"load {shown(one)}", one, at) for at, one in enumerate(_listed(value))
                )
            case "right":
                return [self._grant("right", path, str(value), value)] if value != field.default else ()
            case "limit":
                above = f"{value}, above {field.default}"
                return [self._grant("right", path, above, value)] if value is None or value > field.default else ()
            case "zone":
                access: Any = path[-1]
                zones = (one for one in enumerate(value) if _widens(one[1], access))
                return (self._grant("zone", path, shown(text), text, index) for index, text in zones)
            case "rules":
                return self._rules(path)
            case "server":  # of the journal or the engine; its address may contain a password
                text = f"{'connect to' if '://' in value else 'use'} {shown(without_credentials(value))}"
                return [self._grant("server", path, text, digest(value.encode()))] if value else ()
            case _:
                raise TypeError(f"`{'.'.join(path)}` is not part of an entry, so it cannot have the class `{kind}`")

    def _is_project(self, *path: str) -> bool:
        """Return whether the project decides about a key, alone or together with the operator."""
        return bool(value_at(self._merged, path) != value_at(self._operator, path))

    def _grant(self, kind: Any, path: Keys, text: str, setting: Any, *at: str | int, pair: Any = None) -> AccessGrant:
        place = self._sources.place(*path, *at)
        return AccessGrant(kind, ".".join(path), f"{path_text(path)}{text}", setting, place, pair, path)

    def _entries(self, entries: list[tuple[Keys, Any]], field: FieldInfo) -> Iterator[AccessGrant]:
        shape = struct_in(field.type)
        for path, entry in entries:
            if entry is None or not self._is_project(*path):
                continue
            if shape is McpServer:
                yield self._grant("code", path, _server_text(entry), _trusted_part(McpServer, entry))
            elif shape is NotifySettings:
                yield self._grant("code", path, _notified_text(entry), _trusted_part(NotifySettings, entry))
            elif shape is EnvironmentSettings:
                yield self._grant("code", path, _environment_text(entry), _trusted_part(EnvironmentSettings, entry))
            elif shape is SearchSettings:
                yield from self._endpoint(path, entry)
            else:
                yield from self._model_entry(path, entry)

    def _model_entry(self, path: Keys, entry: Any) -> Iterator[AccessGrant]:
        if not isinstance(entry, dict):
            yield from self._model(path)
            return
        found = [
            (text, key, name)
            for key, kind in classes_of(ModelSettings).items()
            if kind == "model" and self._is_project(*path, key)
            for name in _listed(entry.get(key, ()))
            # `model` is opened as it is, not as another name.
            if (text := needs_trust(name, self._root) if key == "model" else self._need(name))
        ]
        if found:
            texts = [text for text, _, _ in found]
            yield self._grant("code", path, texts[0] if len(texts) == 1 else "; ".join(map(shown, texts)), found)
        yield from self._endpoint(path, entry)

    def _endpoint(self, path: Keys, entry: dict[str, Any]) -> Iterator[AccessGrant]:
        """Yield the server of an entry, with the secret that is sent to it."""
        pair, url = _endpoint_of(entry), "url" if path[0] == "web" else "base_url"
        if pair is None:
            return
        handle, origin = pair
        if handle and pair not in self._operator_pairs:
            grant = self._grant(
                "secret", path, f"send {handle} to {origin}", pair, url if entry.get(url) else "key", pair=pair
            )
            yield msgspec.structs.replace(grant, key=f"{grant.key}.key")
        elif not handle and origin not in self._operator_origins:
            yield self._grant("server", path, f"connect to {origin}", pair, url, pair=pair)

    def _model(self, path: Keys) -> Iterator[AccessGrant]:
        name = value_at(self._merged, path)
        if isinstance(name, str) and (text := self._need(name)):
            yield self._grant("code", path, text, name)

    def _need(self, name: str) -> str:
        """Return why a name of a model needs trust. The entry of a name from `models` has its own grant."""
        return "" if self.models.get(name) is not None else needs_trust(name, self._root)

    def _rules(self, path: Keys) -> Iterator[AccessGrant]:
        for document in self._sources.documents:
            for key, entry in _project_rules(document).items():
                for index, rule in enumerate(_listed(entry)):
                    if wanted := _split_rule(key, rule)[1]:
                        at = (index,) if isinstance(entry, list) else ()
                        place = f"{document.file}:{document.at(*path, key, *at).line}"
                        yield AccessGrant("permission", f"permissions.{key}", _rule_text(key, wanted), wanted, place)


def path_text(path: Keys) -> str:
    """Return how the description of a grant begins."""
    return f"{'.'.join(map(shown, path))}: "


def shown(value: Any) -> str:
    """Return a value so that no other value, and no two, look the same to the user who decides."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


_PLAIN = re.compile(r"[\w./*:@+=~%&?\[\]{}$-]+")


def _trusted_part(shape: type[msgspec.Struct], entry: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an entry that matter for trust."""
    return {key: value for key, value in entry.items() if classes_of(shape)[key] != "plain"}


def _server_text(settings: dict[str, Any]) -> str:
    """Describe the program or the URL of an MCP server, with all settings that matter for trust."""
    command = settings.get("command")
    what = f"start {' '.join(map(shown, command))}" if command else f"connect to {shown(settings.get('url'))}"
    values = settings.get("env") or settings.get("headers")
    named = f" with {json.dumps(values, ensure_ascii=False)}" if values else ""
    return f"{what}{named}{' (trusted)' if settings.get('trusted') else ''}"


def _environment_text(settings: dict[str, Any]) -> str:
    """Describe the packages that the code of skills can import."""
    path = settings.get("path")
    return (
        f"use the packages in {shown(path)}" if path else f"use the packages of {shown(settings.get('requirements'))}"
    )


def _notified_text(settings: dict[str, Any]) -> str:
    """Describe the program and the webhook of notifications, with all settings that matter for trust."""
    texts = [f"start {' '.join(map(shown, settings['command']))}"] if settings.get("command") else []
    if settings.get("url"):
        key = f" with {shown(settings['key'])}" if settings.get("key") else ""
        texts.append(f"send notifications to {shown(settings['url'])}{key}")
    return "; ".join(texts) + (f"; they link to {shown(settings['link'])}" if settings.get("link") else "")


def _endpoints(merged: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the servers of models and of the search provider: the handle of the secret, and the origin."""
    for entry in (*merged.get("models", {}).values(), value_at(merged, ("web", "search"))):
        pair = _endpoint_of(msgspec.to_builtins(entry))
        if pair is not None:
            yield pair


def _endpoint_of(entry: Any) -> tuple[str, str] | None:
    """Return the secret, or an empty text, and the origin of a server; `None` if no request can be sent to one."""
    if not isinstance(entry, dict):  # a name may be an alias
        return None
    handle, url = entry.get("key") or "", entry.get("base_url") or entry.get("url") or ""
    if handle and not url:
        adapter = ADAPTERS.get(str(entry.get("model", "")).partition(":")[0])
        url = adapter.url if adapter else SEARCH_URLS.get(entry.get("provider", ""), "")
    if not handle and not url:
        return None
    try:
        return handle, origin_of(url)
    except OriginInvalid:
        return handle, url


def project_pairs(sources: ConfigSources) -> list[tuple[str, str]]:
    """Return the secrets that the project's own configuration sends somewhere: pairs of a handle and an origin."""
    pairs = {*_endpoints(sources.merged)} - {*_endpoints(sources.operator)}
    return sorted(pair for pair in pairs if pair[0])


def _widens(text: str, access: AccessMode) -> bool:
    """Return whether a zone covers something that the default zone does not."""
    try:
        pattern = PathPattern.parse(text)
    except ValueError:
        return True  # an error is reported when the zones are used
    if pattern.zone == "workspace":
        return False
    if pattern.zone == "outside" or any(must_spell(name, at, access) for at, name in enumerate(pattern.segments)):
        return True
    defaults = [PathPattern.parse(one) for one in getattr(FileZones(), access)]
    return not any(pattern.segments[: len(default.segments)] == default.segments for default in defaults)


def _project_rules(document: Document) -> dict[str, Any]:
    """Return the rules of a source if it is a file of the project. Rules of several sources are added to each other."""
    rules = document.value.get("permissions") if document.file in CONFIG_FILES else None
    return rules if isinstance(rules, dict) else {}


def _split_rule(key: str, rule: Any) -> tuple[Any, Any]:
    """Return the part of a rule that holds without trust, and the part that needs it; `None` if there is none.

    A rule that denies or asks holds, except for paths outside of the project: Reyn would look at them.
    """
    if rule == "allow" or (isinstance(rule, dict) and "allow" in rule):
        return None, rule
    if isinstance(rule, dict) and (key == "exec" or key.startswith("file.")):
        for effect in rule.keys() & {"deny", "ask"}:
            patterns = _listed(rule[effect])
            outside = [one for one in patterns if isinstance(one, str) and one.startswith(("/", "~"))]
            inside = [one for one in patterns if one not in outside]
            if outside:
                return rule | {effect: inside} if inside else None, rule | {effect: outside}
    return rule, None


def _rule_text(key: str, rule: Any) -> str:
    if not isinstance(rule, dict):
        return f"permissions.{key}: {rule}"
    effect = next(iter(rule.keys() - {"skill"}))
    targets, skills = (", ".join(map(shown, _listed(rule.get(part, [])))) for part in (effect, "skill"))
    return f"permissions.{key}: {effect} {targets}{f' (skill {skills})' if skills else ''}"


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _split_rules(sources: ConfigSources) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rules without those that need trust, and those."""
    remaining: dict[str, Any] = {}
    removed: dict[str, Any] = {}
    for document in sources.documents:
        rules = document.value.get("permissions") or {}
        if document.file in CONFIG_FILES:
            parts = {key: [_split_rule(key, rule) for rule in _listed(entry)] for key, entry in rules.items()}
            wanted = {key: [rule for _, rule in split if rule] for key, split in parts.items()}
            removed = merge_rules(removed, {key: found for key, found in wanted.items() if found})
            rest = {
                key: [rule for rule, _ in parts[key] if rule] if wanted[key] else entry for key, entry in rules.items()
            }
            rules = {key: entry for key, entry in rest.items() if entry != []}
        remaining = merge_rules(remaining, rules)
    return remaining, removed


# -- agents ---------------------------------------------------------------------------------------------------


def _agent_grants(root: Path, models: Mapping[str, Any]) -> Iterator[AccessGrant]:
    """Yield the models that need trust in the files of agents. A file with errors is not used either."""
    agents = Agents(root)
    for name in agents:
        try:
            agent, document = agents.read(name)
        except ReynError:
            continue
        if agent.model is None or document is None or models.get(agent.model.name) is not None:
            continue
        if text := needs_trust(agent.model.name, root):
            place = f"{document.file}:{document.at('model').line}"
            yield AccessGrant("code", f"agents.{name}.model", f"{agent.model.owner}: {text}", agent.model, place)
