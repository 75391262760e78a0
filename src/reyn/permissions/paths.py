"""Path patterns of permission requests and rules, and which names a pattern must spell out.

`*`, `?` and `[…]` match within one name, `**` any number of folders; a pattern that ends in `/` covers everything
below it. No wildcard matches a protected name: a hidden file, or something that another program executes or imports
because of where it is. A pattern that is to cover one must spell it: `.github/*.yml`, `tools/*.py`, `Makefile`.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.workspace.paths import WORKSPACE

if TYPE_CHECKING:
    from reyn.workspace import Location

Access = Literal["read", "write"]

_EXECUTED_SUFFIXES = frozenset((
    ".bash", ".bat", ".cjs", ".class", ".cmd", ".com", ".cron", ".csh", ".desktop", ".dll", ".dylib", ".exe",
    ".fish", ".jar", ".js", ".ksh", ".lua", ".mjs", ".mk", ".nu", ".php", ".pl", ".pm", ".ps1", ".psm1", ".pth",
    ".py", ".pyc", ".pyd", ".pyi", ".pyw", ".pyx", ".r", ".rb", ".service", ".sh", ".so", ".tcl", ".timer", ".ts",
    ".vbs", ".zsh",
))  # fmt: skip
"""Files that a program may execute or import when it finds them."""
_EXECUTED_NAMES = frozenset((
    "brewfile", "build.gradle", "cmakelists.txt", "composer.json", "crontab", "docker-compose.yaml",
    "docker-compose.yml", "dockerfile", "earthfile", "gemfile", "gnumakefile", "guardfile", "hooks", "jenkinsfile",
    "justfile", "makefile", "meson.build", "node_modules", "package.json", "podfile", "pom.xml", "procfile",
    "pyproject.toml", "rakefile", "setup.cfg", "sitecustomize", "taskfile.yaml", "taskfile.yml", "tiltfile",
    "tox.ini", "vagrantfile", "wscript",
))  # fmt: skip
"""Files and folders that a program reads as instructions when it finds them."""
_OWN_NAMES = frozenset(("reyn", "reyn.yaml", "reyn.local.yaml"))
"""What Reyn itself reads, at the root of the project."""


def must_spell(name: str, index: int, access: Access) -> bool:
    """Whether a name is protected: only a pattern that spells it out covers it. Reading protects hidden names only."""
    folded = name.casefold()
    if folded.startswith("."):
        return True
    if access == "read":
        return False
    is_own = index == 0 and folded in _OWN_NAMES
    return is_own or folded in _EXECUTED_NAMES or os.path.splitext(folded)[1] in _EXECUTED_SUFFIXES  # noqa: PTH122


def protected_name(parts: tuple[str, ...], access: Access) -> str:
    """Return the first protected name of a path, or an empty string."""
    return next((name for index, name in enumerate(parts) if must_spell(name, index, access)), "")


class PathPattern(msgspec.Struct, frozen=True):
    """A pattern as it was written, with its parsed form."""

    text: str
    zone: Literal["project", "outside", "workspace"]
    segments: tuple[str, ...]
    is_recursive: bool

    @classmethod
    def parse(cls, text: str, scope: str = "") -> PathPattern:
        """Parse a pattern. `scope` is `just_path` or `recursive`; by default a trailing `/` means recursive.

        Raises:
            ValueError: the pattern is empty or contains `..`.
        """
        path = text
        zone: Literal["project", "outside", "workspace"] = "project"
        if text.startswith(WORKSPACE):
            zone, path = "workspace", text.removeprefix(WORKSPACE)
        elif text.startswith(("/", "~")):
            zone, path = "outside", os.path.expanduser(text)  # noqa: PTH111 - a pattern, not a path
        segments = tuple(part for part in path.split("/") if part not in ("", "."))
        if ".." in segments or "\0" in path or not path:
            raise ValueError(f"`{text}` is not a usable path pattern")
        is_recursive = scope == "recursive" or (not scope and (path.endswith("/") or not segments))
        return cls(text, zone, segments, is_recursive)

    def covers(self, location: Location, access: Access) -> bool:
        """Return whether a location matches, protected names only where the pattern spells them."""
        if location.zone != self.zone:
            return False
        return self._covers(location.parts, 0, 0, access)

    def _covers(self, parts: tuple[str, ...], at: int, segment: int, access: Access) -> bool:
        if segment == len(self.segments):
            rest = parts[at:]
            if not rest:
                return True
            # The author of an outside pattern has not reviewed names that the pattern does not spell.
            return self.is_recursive and not any(
                must_spell(name, at + offset, access) for offset, name in enumerate(rest)
            )
        wanted = self.segments[segment]
        if wanted == "**":
            reach = at
            while True:
                if self._covers(parts, reach, segment + 1, access):
                    return True
                if reach == len(parts) or must_spell(parts[reach], reach, access):
                    return False
                reach += 1
        if at == len(parts) or not _matches(wanted, parts[at], at, access):
            return False
        return self._covers(parts, at + 1, segment + 1, access)


def _matches(segment: str, name: str, index: int, access: Access) -> bool:
    if not any(sign in segment for sign in "*?["):
        return segment == name
    if not fnmatchcase(name, segment):
        return False
    if not must_spell(name, index, access):
        return True
    if name.startswith("."):
        return segment.startswith(".")
    suffix = os.path.splitext(name)[1]  # noqa: PTH122
    return suffix.casefold() in _EXECUTED_SUFFIXES and segment.endswith(suffix)


def parse_patterns(value: Any) -> tuple[PathPattern, ...]:
    """Parse the paths of a request: a path, or a list of paths and of `{path, scope}`.

    Raises:
        ValueError: says what is wrong.
    """
    entries = value if isinstance(value, list) else [value]
    matches = []
    for entry in entries:
        match entry:
            case str():
                matches.append(PathPattern.parse(entry))
            case {"path": str(path), **rest} if rest.keys() <= {"scope", "reason"}:
                scope = rest.get("scope", "")
                if scope not in ("", "just_path", "recursive"):
                    raise ValueError(f"`scope: {scope}` is neither `just_path` nor `recursive`")
                matches.append(PathPattern.parse(path, scope))
            case _:
                raise ValueError(f"{entry!r} is neither a path nor `{{path, scope}}`")
    return tuple(matches)
