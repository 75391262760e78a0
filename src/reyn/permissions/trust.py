"""Trust in a project: the user's decision about the settings in its files that grant access.

`reyn.yaml`, `reyn.local.yaml` and the files of agents come with a project, which may be a stranger's. Until the user
trusts the project, what `reyn.permissions.grants` lists has no effect; everything else holds. The user's decision is
stored outside the project and covers exactly what the project wanted then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.config import Config
from reyn.config.load import CONFIG_FILES, ConfigSources, Setting, explain_config, load_sources
from reyn.config.user import TrustEntry, user_config
from reyn.journal import canonical, digest
from reyn.permissions.grants import AccessGrant, path_text, project_grants, project_pairs, without_trust

if TYPE_CHECKING:
    from reyn.config.models import ProjectModel

UNTRUSTED = "the project is not trusted"
TrustState = Literal["not needed", "trusted", "declined", "not trusted"]


class ProjectTrust(msgspec.Struct, frozen=True):
    """The settings of a project that need trust, and the user's decision.

    Attributes:
        root: The project's folder.
        state: The user's decision. A decision about other settings than the current ones does not count.
        grants: Everything in the project's own files that needs trust.
        ignored: The settings that have no effect. A secret that is bound to the project's origin already needs no
            trust.
        ignored_permissions: The grants that have no effect, in the form of `permissions`.
        is_vouched: Whether the caller trusts the project, whatever it names.
    """

    root: str = ""
    state: TrustState = "not needed"
    grants: tuple[AccessGrant, ...] = ()
    ignored: tuple[AccessGrant, ...] = ()
    ignored_permissions: dict[str, Any] = {}
    is_vouched: bool = False

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
        return {
            "".join(grant.unit[1:]): f"{grant.text.removeprefix(path_text(grant.unit))} ({grant.place})"
            for grant in self.ignored
            if grant.unit[:1] in (("model",), ("models",))
        }

    @property
    def ignored_environments(self) -> frozenset[str]:
        """The names of environments that have no effect."""
        return frozenset("".join(grant.unit[1:]) for grant in self.ignored if grant.unit[:1] == ("environments",))

    def permits(self, model: ProjectModel) -> bool:
        """Return whether the user trusts a model that a file of the project names besides its configuration."""
        return self.is_vouched or (self.state == "trusted" and any(grant.setting == model for grant in self.grants))


class LoadedProject(msgspec.Struct, frozen=True):
    """The configuration of a project that is in effect, and the sources it comes from."""

    config: Config
    trust: ProjectTrust
    sources: ConfigSources

    def settings(self) -> list[Setting]:
        """Return every setting with its origin, and whether it is ignored."""
        ignored: dict[str, list[str]] = {}
        for grant in self.trust.ignored:
            if not grant.is_agents:
                ignored.setdefault(grant.key, []).append(grant.text)
        agents = (grant for grant in self.trust.ignored if grant.is_agents)
        return [
            *explain_config(self.sources, self.config, ignored),
            *(Setting(grant.key, None, grant.place, (grant.text,)) for grant in agents),
        ]


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
    own = user_config(environ).read()
    grants = project_grants(sources, root)
    needed = tuple(grant for grant in grants if not grant.is_bound(own))
    state: TrustState
    if trust is None:
        state = _state(own.projects.get(str(root)), grants) if needed else "not needed"
    else:
        state = "not needed" if not needed else "trusted" if trust else "not trusted"
    if state in ("declined", "not trusted"):
        merged, removed = without_trust(sources, needed)
        found = ProjectTrust(str(root), state, grants, needed, removed)
    else:
        merged, found = sources.merged, ProjectTrust(str(root), state, grants, is_vouched=trust is True)
    return LoadedProject(msgspec.convert(merged, Config), found, sources)


class OpenProject:
    """The configuration of an open project: as it was when the project was opened, and as it is now."""

    def __init__(self, root: Path, flags: Mapping[str, Any] | None = None, *, trust: bool | None = None) -> None:
        """Load the configuration; see `load_project`."""
        self._load = partial(load_project, root, flags, trust=trust)
        paths = (*(root / name for name in CONFIG_FILES), user_config().path)
        self._files = tuple(os.fspath(path) for path in paths if path is not None)
        self._identities: list[tuple[int, ...] | None] = []
        self.opened = self.current()

    def current(self) -> LoadedProject:
        """Return the configuration of the files as they are now. Files that did not change are not read again.

        Raises:
            ConfigInvalid: Lists every error with its position.
        """
        found: list[tuple[int, ...] | None] = []
        for path in self._files:
            try:
                file = os.stat(path)  # noqa: PTH116 - a third of the time
            except OSError:
                found.append(None)
            else:
                found.append((file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns))
        if found != self._identities:
            self._current = self._load()
            self._identities = found
        return self._current


def store_decision(loaded: LoadedProject, *, is_trusted: bool = True) -> list[tuple[str, str]]:
    """Store the user's decision about the settings that need trust.

    With trust, a secret that is bound to no origin yet is bound to the one that the project names.

    Returns:
        Pairs of a handle and an origin that stay apart, because the secret is bound to other origins.
    """
    own = user_config()
    own.decide(Path(loaded.trust.root), TrustEntry(loaded.trust.digest, is_trusted))
    refused: list[tuple[str, str]] = []
    for handle, origin in project_pairs(loaded.sources) if is_trusted else ():
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
    return sorted({grant.pair for grant in grants if grant.pair and grant.pair[0] and grant.is_bound(own)})


def _state(entry: TrustEntry | None, grants: tuple[AccessGrant, ...]) -> TrustState:
    if entry is None or entry.wants != _digest(grants):
        return "not trusted"
    return "trusted" if entry.trusted else "declined"


def _digest(grants: tuple[AccessGrant, ...]) -> str:
    """Return a digest of what is granted, in any order."""
    return digest(b"\n".join(sorted(canonical((one.kind, one.key, one.unit, one.setting)) for one in grants)))
