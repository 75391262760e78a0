"""Build the operator's policy from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from reyn.config.load import CONFIG_FILES
from reyn.documents import Document, DocumentError, key_path, parse_yaml, read_text
from reyn.errors import ConfigInvalid, Finding
from reyn.errors.codes import CONFIG_INVALID
from reyn.folders import DEFINITIONS
from reyn.permissions.paths import PathPattern
from reyn.permissions.rules import Policy, Rule, RuleError, parse_rules, read_rules

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.config import Config
    from reyn.permissions.trust import LoadedProject, OpenProject, ProjectTrust


def policy_of(
    config: Config,
    known: Iterable[str],
    root: Path | None = None,
    trust: ProjectTrust | None = None,
    *,
    allow_shell: bool = False,
    allow_unsafe_python: bool = False,
) -> Policy:
    """Return the policy of a configuration.

    Args:
        config: The configuration.
        known: The permission keys that exist.
        root: The project, whose files have the line of an invalid rule.
        trust: Whether the project is trusted; by default it is.
        allow_shell: Whether the operator has switched `shell` on.
        allow_unsafe_python: Whether the operator has allowed unsafe python steps.

    Grants that are ignored because the project is not trusted are checked, too.

    Raises:
        ConfigInvalid: names the rule or zone that is wrong.
    """
    try:
        capabilities = tuple(known)
        rules = parse_rules(config.permissions, capabilities)
        ignored = parse_rules(trust.ignored_permissions if trust else {}, capabilities)
        zones = [tuple(_zone(text, key) for text in getattr(config.files, key)) for key in ("read", "write")]
    except RuleError as error:
        findings = list(_findings(root, capabilities)) if root is not None else []
        fallback = Finding("configuration", 1, 1, CONFIG_INVALID, _message(error), error.fix)
        raise ConfigInvalid("the configuration has errors:", findings or [fallback]) from error
    note = "Settings of this project are ignored because the operator has not trusted it."
    return Policy(
        rules,
        zones[0],
        zones[1],
        ignored,
        note if trust is not None and trust.ignored else "",
        allow_shell=allow_shell,
        allow_unsafe_python=allow_unsafe_python,
    )


def written_places(config: Config) -> tuple[str, ...]:
    """Return the path patterns that runs may write: the zones, and what rules allow."""
    rules = (rule for rule, _ in read_rules(config.permissions, ("file.write",))[0] if rule.effect == "allow")
    return (*config.files.write, *(pattern for rule in rules for pattern in rule.patterns or ("",)))


class LivePolicy:
    """The policy of an open project, which follows the project's files."""

    def __init__(
        self,
        project: OpenProject,
        overlay: Callable[[Config], Config],
        known: Iterable[str],
        root: Path,
        *,
        allow_shell: bool,
        allow_unsafe_python: bool,
    ) -> None:
        """Follow a project; `overlay` returns its configuration with the caller's settings, see also `policy_of`."""
        self._project = project
        self._overlay = overlay
        self._policy_of = partial(
            policy_of,
            known=tuple(known),
            root=root,
            allow_shell=allow_shell,
            allow_unsafe_python=allow_unsafe_python,
        )
        self._loaded: LoadedProject | None = None
        self._policy = Policy()

    def read(self) -> Policy:
        """Return the policy of the files as they are now.

        Raises:
            ConfigInvalid: Lists every error with its position.
        """
        loaded = self._project.current()
        if loaded is not self._loaded:
            self._policy = self._policy_of(self._overlay(loaded.config), trust=loaded.trust)
            self._loaded = loaded
        return self._policy


def _zone(text: str, key: str) -> PathPattern:
    try:
        return PathPattern.parse(text)
    except ValueError as error:
        raise RuleError(str(error), "files", key) from error


class RulePlaces:
    """The lines of the rules and zones of a project."""

    def __init__(self, root: Path, known: Iterable[str]) -> None:
        self._documents = list(_documents(root))
        self._places: dict[Rule, str] = {}
        for document in self._documents:
            for rule, path in read_rules(_rules_in(document), known)[0]:
                self._places.setdefault(rule, _place(document, "permissions", *path))

    def of_rule(self, rule: Rule) -> str:
        """Return the file and line of a rule; empty if it is in no file."""
        return self._places.get(rule, "")

    def of_zone(self, access: str, text: str) -> str:
        """Return the file and line of a zone; `default` if no file sets it."""
        for document in reversed(self._documents):
            if (zone := _zone_in(document, access)) is not None:
                return _place(document, "files", access, zone.index(text)) if text in zone else ""
        return "default"


def _place(document: Document, *path: str | int) -> str:
    return f"{document.file}:{document.at(*path).line}"


def _documents(root: Path) -> Iterator[Document]:
    """Yield the configuration files that can be read; `load_config` reports the others."""
    for name in CONFIG_FILES:
        with suppress(DocumentError):
            if (root / name).is_file():
                document = parse_yaml(read_text(root / name, name, inside=root, below=DEFINITIONS), name)
                if isinstance(document.value, dict):
                    yield document


def _rules_in(document: Document) -> dict[str, Any]:
    rules = document.value.get("permissions")
    return rules if isinstance(rules, dict) else {}


def _zone_in(document: Document, access: str) -> list[Any] | None:
    files = document.value.get("files")
    zone = files.get(access) if isinstance(files, dict) else None
    return zone if isinstance(zone, list) else None


def _findings(root: Path, known: Iterable[str]) -> Iterator[Finding]:
    """Yield every error in the rules and zones of a project's files, with its position."""
    for document in _documents(root):
        for error in read_rules(_rules_in(document), known)[1]:
            yield document.finding(CONFIG_INVALID, _message(error), "permissions", *error.path, fix=error.fix)
        for access in ("read", "write"):
            for index, text in enumerate(_zone_in(document, access) or ()):
                try:
                    _zone(str(text), access)
                except RuleError as error:
                    yield document.finding(CONFIG_INVALID, _message(error), "files", access, index)


def _message(error: RuleError) -> str:
    is_zone = error.path[0] == "files"
    return f"`{key_path(error.path if is_zone else ('permissions', *error.path))}`: {error}"
