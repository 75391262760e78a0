"""Trust in a project: the settings in its files that grant access, and the user's decision about them.

`reyn.yaml` and `reyn.local.yaml` come with a project, which may be a stranger's. Until the user trusts the project,
they cannot widen the file zones, grant permissions, send a secret to a new origin, or load code; everything else in
them holds. The user's decision is stored outside the project and covers exactly what the project wanted then.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.config import Config, ModelSettings
from reyn.config.load import FILES, ConfigSources, explain_config, load_sources, merge_rules
from reyn.config.models import ADAPTERS
from reyn.config.user import TrustEntry, user_config
from reyn.config.values import SEARCH_URLS, FileZones
from reyn.errors import OriginInvalid
from reyn.journal import canonical, digest
from reyn.models.catalog import is_reference
from reyn.permissions.paths import PathPattern, must_spell
from reyn.secrets.handles import origin_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reyn.config.load import Setting
    from reyn.config.user import UserConfig
    from reyn.documents import Document
from reyn.permissions.paths import Access

UNTRUSTED = "the project is not trusted"
TrustState = Literal["not needed", "trusted", "declined", "not trusted"]
_ACCESSES: tuple[Access, ...] = ("read", "write")


class AccessGrant(msgspec.Struct, frozen=True):
    """One setting of a project that grants access, and therefore needs trust.

    Attributes:
        kind: A file zone, a permission, a secret, or code to load.
        key: The key of the configuration, such as `files.write`.
        text: A description of the access.
        place: Where it is set, such as `reyn.yaml:3`.
        pair: The handle of a secret, and the origin that it would be sent to.
    """

    kind: Literal["zone", "permission", "secret", "code"]
    key: str
    text: str
    place: str
    pair: tuple[str, str] | None = None

    def is_bound(self, own: UserConfig) -> bool:
        """Return whether this is a secret that the user has bound to the origin."""
        return self.pair is not None and self.pair[1] in map(origin_of, own.secrets.get(self.pair[0], ()))


class ProjectTrust(msgspec.Struct, frozen=True):
    """The settings of a project that need trust, and the user's decision.

    Attributes:
        root: The project's folder.
        state: The user's decision. A decision about other settings than the current ones does not count.
        grants: Everything in the project's own configuration that needs trust.
        ignored: The settings that have no effect. A secret that is bound to the project's origin already needs no
            trust.
        ignored_permissions: The grants that have no effect, in the form of `permissions`.
        withheld: Secrets and origins that the project may not bring together: pairs of a handle and an origin.
    """

    root: str = ""
    state: TrustState = "not needed"
    grants: tuple[AccessGrant, ...] = ()
    ignored: tuple[AccessGrant, ...] = ()
    ignored_permissions: dict[str, Any] = {}
    withheld: frozenset[tuple[str, str]] = frozenset()

    @property
    def digest(self) -> str:
        """A digest of the settings that need trust; the user's decision is bound to it."""
        return _digest(self.grants)

    @property
    def warning(self) -> str:
        """Return a warning that lists the ignored settings; empty if there are none."""
        if not self.ignored:
            return ""
        listed = "; ".join(f"{grant.text} ({grant.place})" for grant in self.ignored)
        return f"{UNTRUSTED}, so these settings are ignored: {listed}"

    @property
    def ignored_models(self) -> dict[str, str]:
        """The models that have no effect, by name, with what they would do. The default model has the name ``."""
        keys = [(grant.key.partition("."), grant) for grant in self.ignored if grant.kind == "code"]
        return {
            name: f"{grant.text.partition(': ')[2]} ({grant.place})"
            for (section, _, name), grant in keys
            if section in ("model", "models")
        }

    def may_bind(self, handle: str, origin: str) -> bool:
        """Return whether the first use of a secret may bind it to an origin."""
        return (handle, origin) not in self.withheld


class LoadedProject(msgspec.Struct, frozen=True):
    """The configuration of a project that is in effect, and the sources it comes from."""

    config: Config
    trust: ProjectTrust
    sources: ConfigSources

    def settings(self) -> list[Setting]:
        """Return every setting with its origin, and whether it is ignored."""
        ignored: dict[str, list[str]] = {}
        for grant in self.trust.ignored:
            ignored.setdefault(grant.key, []).append(grant.text)
        return explain_config(self.sources, self.config, ignored)


def load_project(
    root: Path,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    trust: bool | None = None,
) -> LoadedProject:
    """Load the configuration of a project; leave out what needs trust if the project is not trusted.

    Args:
        root: The project's folder.
        flags: Settings of the caller, who needs no trust.
        environ: Environment variables; those of the process by default.
        trust: Whether the caller vouches for the project; by default the user's stored decision counts.
    """
    sources = load_sources(root, flags, environ)
    merged = sources.merged
    own = user_config(environ).read()
    grants = tuple(_access_grants(sources, merged))
    needed = tuple(grant for grant in grants if not grant.is_bound(own))
    state: TrustState
    if trust is None:
        state = _state(own.projects.get(str(root)), grants) if needed else "not needed"
    else:
        state = "not needed" if not needed else "trusted" if trust else "not trusted"
    found = ProjectTrust(str(root), state, grants)
    if state in ("declined", "not trusted"):
        for grant in grants:
            merged = _without(merged, grant)
        removed = _without_rules(merged, sources)
        withheld = frozenset(_project_pairs(sources))
        found = ProjectTrust(str(root), state, grants, needed, removed, withheld)
    return LoadedProject(msgspec.convert(merged, Config), found, sources)


def store_decision(loaded: LoadedProject, *, is_trusted: bool = True) -> list[tuple[str, str]]:
    """Store the user's decision about the settings that need trust.

    With trust, a secret that is bound to no origin yet is bound to the one that the project names.

    Returns:
        Pairs of a handle and an origin that stay apart, because the secret is bound to other origins.
    """
    own = user_config()
    own.decide(Path(loaded.trust.root), TrustEntry(loaded.trust.digest, is_trusted))
    refused: list[tuple[str, str]] = []
    for handle, origin in _project_pairs(loaded.sources) if is_trusted else ():
        bound = own.allowed(handle)
        if not bound:
            own.allow(handle, origin)
        elif origin not in bound:
            refused.append((handle, origin))
    return refused


def bound_secrets(root: Path) -> list[tuple[str, str]]:
    """Return the secrets that are bound to origins in the project's own configuration. They need no trust."""
    own = user_config().read()
    grants = load_project(root).trust.grants if root.is_dir() else ()
    return sorted({grant.pair for grant in grants if grant.pair is not None and grant.is_bound(own)})


def _project_pairs(sources: ConfigSources) -> list[tuple[str, str]]:
    """Return the secrets that the project's own configuration sends somewhere: pairs of a handle and an origin."""
    theirs, operators = ({pair for _, pair in _pairs(one)} for one in (sources.merged, sources.operator))
    return sorted(theirs - operators)


def _state(entry: TrustEntry | None, grants: tuple[AccessGrant, ...]) -> TrustState:
    if entry is None or entry.wants != _digest(grants):
        return "not trusted"
    return "trusted" if entry.trusted else "declined"


def _digest(grants: tuple[AccessGrant, ...]) -> str:
    return digest(canonical(sorted((grant.kind, grant.text) for grant in grants)))


# -- what needs trust -----------------------------------------------------------------------------------------


def _access_grants(sources: ConfigSources, merged: dict[str, Any]) -> Iterator[AccessGrant]:
    for access in _ACCESSES:
        entries = merged.get("files", {}).get(access, ())
        if _is_project(sources, "files", access):
            for index, text in enumerate(entries):
                if _widens(text, access):
                    place = sources.place("files", access, index)
                    yield AccessGrant("zone", f"files.{access}", f"files.{access}: {text}", place)
    for document in sources.documents:
        for key, entry in _project_rules(document).items():
            for index, rule in enumerate(_rules(entry)):
                if _grants(rule):
                    path = ("permissions", key, index) if isinstance(entry, list) else ("permissions", key)
                    place = f"{document.file}:{document.at(*path).line}"
                    yield AccessGrant("permission", f"permissions.{key}", _rule_text(key, rule), place)
    if _is_project(sources, "tools"):
        for index, name in enumerate(merged.get("tools", ())):
            yield AccessGrant("code", "tools", f"tools: load {name}", sources.place("tools", index))
    for name, settings in (_value_at(merged, ("mcp", "servers")) or {}).items():
        if _is_project(sources, "mcp", "servers", name):
            text = f"mcp.servers.{name}: {_server_text(settings)}"
            yield AccessGrant("code", f"mcp.servers.{name}", text, sources.place("mcp", "servers", name))
    for keys, text in _foreign_models(sources):
        yield AccessGrant("code", ".".join(keys), f"{'.'.join(keys)}: {text}", sources.place(*keys))
    own = _project_pairs(sources)
    for path, pair in _pairs(merged):
        if pair in own:
            url = "url" if path == _SEARCH else "base_url"
            place = sources.place(*path, url if _value_at(merged, (*path, url)) else "key")
            key = ".".join(path)
            yield AccessGrant("secret", f"{key}.key", f"{key}: send {pair[0]} to {pair[1]}", place, pair)


def _server_text(settings: Any) -> str:
    """Describe the program or the URL of an MCP server, with all settings that matter for trust."""
    command = settings.get("command")
    what = f"start {' '.join(map(str, command))}" if command else f"connect to {settings.get('url')}"
    values = {**settings.get("env", {}), **settings.get("headers", {})}
    named = f" with {', '.join(f'{name}={value}' for name, value in values.items())}" if values else ""
    return f"{what}{named}{' (trusted)' if settings.get('trusted') else ''}"


def _foreign_models(sources: ConfigSources) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the models of the project that load code or use credentials of the environment: their key, and what."""
    merged = sources.merged
    if _is_project(sources, "model") and (text := _foreign(merged.get("model"))):
        yield ("model",), text
    for name, entry in merged.get("models", {}).items():
        settings = entry if isinstance(entry, dict) else {"model": entry}
        if _is_project(sources, "models", name):
            named = (settings, *({"model": one} for one in settings.get("fallback", ())))
            texts = [text for one in named if (text := _foreign(one.get("model"), one))]
            if texts:
                yield ("models", name), "; ".join(texts)


def _foreign(model: Any, settings: Mapping[str, Any] | None = None) -> str:
    """Return why a model needs trust; empty if it does not."""
    if not isinstance(model, str):
        return ""
    if model.startswith("litellm:"):
        is_bound = settings is not None and settings.get("base_url")
        return "" if is_bound else f"use credentials of the environment for {model}"
    return f"load {model}" if is_reference(model) else ""


def _project_rules(document: Document) -> dict[str, Any]:
    """Return the rules of a source if it is a file of the project. Rules of several sources are added to each other."""
    rules = document.value.get("permissions") if document.file in FILES else None
    return rules if isinstance(rules, dict) else {}


def _rules(entry: Any) -> list[Any]:
    return entry if isinstance(entry, list) else [entry]


def _is_project(sources: ConfigSources, *path: str) -> bool:
    """Return whether the project decides about a key, alone or together with the operator."""
    return bool(_value_at(sources.merged, path) != _value_at(sources.operator, path))


def _value_at(merged: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        merged = merged.get(step) if isinstance(merged, dict) else None
    return merged


def _widens(text: str, access: Access) -> bool:
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


def _grants(rule: Any) -> bool:
    return rule == "allow" or (isinstance(rule, dict) and "allow" in rule)


def _rule_text(key: str, rule: Any) -> str:
    if not isinstance(rule, dict):
        return f"permissions.{key}: allow"
    targets, skills = (_listed(rule.get(part, [])) for part in ("allow", "skill"))
    return f"permissions.{key}: allow {targets}{f' (skill {skills})' if skills else ''}"


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_SEARCH = ("web", "search")


def _pairs(merged: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield the secrets of models and of the search provider: the path of the settings, and handle and origin."""
    for name, settings in merged.get("models", {}).items():
        if isinstance(settings, ModelSettings):
            settings = msgspec.to_builtins(settings)
        if isinstance(settings, dict) and settings.get("key"):  # a name may be an alias
            adapter = ADAPTERS.get(str(settings.get("model", "")).partition(":")[0])
            url = settings.get("base_url") or (adapter.url if adapter else "")
            yield ("models", name), _with_origin(settings["key"], url)
    search = _value_at(merged, _SEARCH)
    if isinstance(search, dict) and search.get("key"):
        url = search.get("url") or SEARCH_URLS.get(search.get("provider", ""), "")
        yield _SEARCH, _with_origin(search["key"], url)


def _with_origin(handle: str, url: str) -> tuple[str, str]:
    try:
        return handle, origin_of(url)
    except OriginInvalid:
        return handle, url


# -- without trust --------------------------------------------------------------------------------------------


def _without(merged: dict[str, Any], grant: AccessGrant) -> dict[str, Any]:
    """Return the configuration without a zone, or without code to load. Zones are never wider than configured."""
    if grant.kind == "zone":
        access: Any = grant.key.removeprefix("files.")
        files = merged["files"]
        return merged | {"files": files | {access: [text for text in files[access] if not _widens(text, access)]}}
    if grant.kind != "code":
        return merged
    section, _, rest = grant.key.partition(".")  # a name may have dots
    if section == "mcp":
        servers = _removed(merged["mcp"]["servers"], rest.removeprefix("servers."))
        return merged | {"mcp": merged["mcp"] | {"servers": servers}}
    return merged | {section: _removed(merged[section], rest)} if rest else _removed(merged, section)


def _removed(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def _without_rules(merged: dict[str, Any], sources: ConfigSources) -> dict[str, Any]:
    """Remove the grants that need trust, and return them. Rules that deny or ask stay."""
    remaining: dict[str, Any] = {}
    removed: dict[str, Any] = {}
    for document in sources.documents:
        rules = document.value.get("permissions") or {}
        if document.file in FILES:
            granted = {key: [rule for rule in _rules(entry) if _grants(rule)] for key, entry in rules.items()}
            removed = merge_rules(removed, {key: found for key, found in granted.items() if found})
            rest = {
                key: [rule for rule in _rules(entry) if not _grants(rule)] if granted[key] else entry
                for key, entry in rules.items()
            }
            rules = {key: entry for key, entry in rest.items() if entry != []}
        remaining = merge_rules(remaining, rules)
    if removed:
        merged["permissions"] = remaining
    return removed
