"""Path patterns of permission requests and rules: what they grant, and what they restrict.

`*`, `?` and `[…]` match within one name, `**` any number of folders; a pattern that ends in `/` covers everything
below it. In a request or an `allow`, no wildcard matches a protected name: a hidden file, or something that another
program executes or imports because of where it is. A pattern that grants one must spell it: `.github/*.yml`,
`tools/*.py`, `Makefile`. A pattern that denies or asks covers every name, and everything below what it matches.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.errors import RulesTooBroad
from reyn.workspace.paths import RECORDED_FOLDER, WORKSPACE, folded

if TYPE_CHECKING:
    from reyn.workspace import Location, Roots
    from reyn.workspace.files import Identity

AccessMode = Literal["read", "write"]

_OWN_NAMES = frozenset(("reyn", "reyn.yaml", "reyn.local.yaml"))
"""What Reyn itself reads, at the root of the project."""


def must_spell(name: str, index: int, access: AccessMode) -> bool:
    """Whether a name is protected: only a pattern that spells it out covers it. Reading protects hidden names only."""
    lower = name.casefold()
    if lower.startswith("."):
        return True
    if access == "read":
        return False
    return (
        (index == 0 and lower in _OWN_NAMES)
        or lower in EXECUTED_NAMES
        or os.path.splitext(lower)[1] in EXECUTED_SUFFIXES  # noqa: PTH122 - a name
        or EXECUTED_FAMILIES.fullmatch(lower) is not None
    )


def protected_name(parts: tuple[str, ...], access: AccessMode) -> str:
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

    def covers(self, location: Location, access: AccessMode) -> bool:
        """Return whether it grants a location: protected names only where the pattern spells them."""
        if location.zone != self.zone:
            return False
        end, positions = len(self.segments), {0}
        has_any = "**" in self.segments
        for index, name in enumerate(location.parts):
            after = set()
            for at in _with_empty(self.segments, positions) if has_any else positions:
                if at == end or self.segments[at] == "**":
                    # The author of an outside pattern has not reviewed names that the pattern does not spell.
                    if (at < end or self.is_recursive) and not must_spell(name, index, access):
                        after.add(at)
                elif _matches(self.segments[at], name, index, access):
                    after.add(at + 1)
            positions = after
        return end in (_with_empty(self.segments, positions) if has_any else positions)


def _with_empty(segments: tuple[str, ...], positions: set[int]) -> set[int]:
    """Return positions in a pattern, with those after a `**` that matches no folder."""
    for after in sorted(positions):
        while after < len(segments) and segments[after] == "**":
            after += 1
            positions.add(after)
    return positions


def exact_pattern(location: Location) -> str:
    """Return the pattern that grants one location and nothing else."""
    names = "/".join(_SPECIAL.sub(r"[\g<0>]", name) for name in location.parts)
    match location.zone:
        case "workspace":
            return f"{WORKSPACE}{names}"
        case "outside":
            return f"/{names}"
    return f"./{names}" if not names or names.startswith(("~", WORKSPACE)) else names


_SPECIAL = re.compile(r"[*?[]")


def _is_literal(segment: str) -> bool:
    return not any(sign in segment for sign in "*?[")


def _matches(segment: str, name: str, index: int, access: AccessMode) -> bool:
    if _is_literal(segment):
        return segment == name
    if not fnmatchcase(name, segment):
        return False
    if not must_spell(name, index, access):
        return True
    if name.startswith("."):
        return segment.startswith(".")
    suffix = os.path.splitext(name)[1]  # noqa: PTH122 - a name
    return suffix.casefold() in EXECUTED_SUFFIXES and segment.endswith(suffix)


MAX_WALKED_FILES = 500_000
"""The files whose other names (hard links) are looked for, in the folders that the rules of one run restrict."""
MAX_RULE_COMPARISONS = 1_000_000
"""The comparisons of a path with a pattern in the folders of the system, before a program starts."""
Positions = frozenset[int]
"""How much of a pattern the names of a path match: positions in it, the last one if it covers the path."""


class RestrictedPath:
    """A path pattern that denies or asks, as the files that it stands for.

    It is compared with the path as it was written and after each symlink was followed, wherever the pattern begins: its
    own symlinks are resolved, too. It covers everything below what it matches, names of any case, and other names (hard
    links) of the files that it covers.

    Attributes:
        top: The folder or file that the pattern begins with, without symlinks.
        is_compared: Whether other names (hard links) of its files are looked for, below `top`. They are not for a
            wildcard outside of the project, nor where a link in the project leads out of it.
        may_be_system: Whether it is about files of the system. A wildcard in the project is not about an installation
            of Python there.
    """

    def __init__(self, pattern: PathPattern, roots: Roots) -> None:
        base = {"project": roots.bases.project, "workspace": roots.bases.workspace}.get(pattern.zone, "/")
        wild = next((at for at, one in enumerate(pattern.segments) if not _is_literal(one)), len(pattern.segments))
        top = os.path.join(base, *pattern.segments[:wild])  # noqa: PTH118 - text in, text out
        is_recorded = pattern.zone == "workspace" and pattern.segments[:1] == (RECORDED_FOLDER,)
        # Recorded content is no folder on disk, so that a link in its place changes nothing.
        self.top = top if is_recorded else os.path.realpath(top)
        self._depth = len(names_of(self.top))
        self._names = (*names_of(self.top), *map(folded, pattern.segments[wild:]))
        is_outside, is_literal = pattern.zone == "outside", wild == len(pattern.segments)
        self.is_compared = is_literal if is_outside else _is_at(self.top, base)
        self.may_be_system = is_outside or is_literal

    def covers(self, names: tuple[str, ...]) -> bool:
        """Return whether it covers an absolute path, as the names that `names_of` returns."""
        return self.is_end(self.positions(names))

    def is_end(self, at: Positions) -> bool:
        return len(self._names) in at

    def is_evaded_by(self, link: str) -> bool:
        """Return whether it covers the path of a symlink, or a path through it, and not where that path leads."""
        target = os.path.realpath(link)
        reached, written = self.positions(names_of(target)), self.positions(names_of(link))
        if self.is_end(reached) or min(written, default=0) < self._depth:
            return False
        return bool(written - reached) if os.path.isdir(target) else self.is_end(written)  # noqa: PTH112 - text in

    def positions(self, names: tuple[str, ...]) -> Positions:
        """Return how much of the pattern the names of an absolute path match; nothing if they lead elsewhere."""
        depth = min(self._depth, len(names))
        if names[:depth] != self._names[:depth]:
            return frozenset()
        at = self._with_empty({depth})
        for name in names[depth:]:
            if self.is_end(at):
                break
            at = self.after(at, name)
        return at

    def after(self, at: Positions, name: str) -> Positions:
        """Return how much of the pattern a path matches that has one more name."""
        found: set[int] = set()
        for one in at:
            segment = self._names[one] if one < len(self._names) else "**"  # everything below is covered
            if one < self._depth:
                found.update((one + 1,) if segment == name else ())
            elif segment == "**":
                found.add(one)
            elif segment == name or fnmatchcase(name, segment):
                found.add(one + 1)
        return self._with_empty(found)

    def _with_empty(self, positions: set[int]) -> Positions:
        return frozenset(_with_empty(self._names, positions) if max(positions, default=0) >= self._depth else positions)


def restricted_below(folder: str, patterns: list[RestrictedPath], left_out: Collection[str]) -> Iterator[str]:
    """Yield the uppermost paths below a folder of the system that patterns cover, in one walk.

    A pattern that covers the folder itself is left to the rules of each op.

    Args:
        folder: The folder.
        patterns: The patterns.
        left_out: Folders that are not looked into.

    Raises:
        RulesTooBroad: There are too many files, or too many patterns.
    """
    states = [(one, one.positions(names_of(folder))) for one in patterns if one.may_be_system]
    waiting = [(folder, [(one, at) for one, at in states if at and not one.is_end(at)])]
    left = MAX_RULE_COMPARISONS
    while waiting:
        above, states = waiting.pop()
        for path, is_folder in _listed(above) if states else ():
            left -= len(states)
            if left < 0:
                raise RulesTooBroad(f"{len(patterns)} patterns of rules are about too many files below `{folder}`")
            name = folded(path.rpartition("/")[2])
            after = [(one, found) for one, at in states if (found := one.after(at, name))]
            if any(one.is_end(at) for one, at in after):
                yield path
            elif is_folder and path not in left_out:
                waiting.append((path, after))


class LinkedFiles:
    """Finds other names (hard links) of files, in folders that are each listed once."""

    def __init__(self, left_out: Collection[str]) -> None:
        self._left_out = left_out
        self._found: dict[str, dict[Identity, list[tuple[str, ...]]]] = {}
        self._left = MAX_WALKED_FILES

    def names(self, identity: Identity, top: str) -> list[tuple[str, ...]]:
        """Return the paths of a file at or below a path, each as its names.

        Raises:
            RulesTooBroad: There are too many files.
        """
        left_out = [one for one in self._left_out if _is_at(top, one)]
        listed = (one for one in self._found if _is_at(top, one) and all(_is_at(one, out) for out in left_out))
        above = next(listed, top)
        if above not in self._found:
            self._found[above] = self._listed(above)
        return self._found[above].get(identity, [])

    def _listed(self, top: str) -> dict[Identity, list[tuple[str, ...]]]:
        found: dict[Identity, list[tuple[str, ...]]] = {}
        waiting = [(top, os.path.isdir(top))]  # noqa: PTH112 - text
        while waiting:
            path, is_folder = waiting.pop()
            self._left -= 1
            if self._left < 0:
                raise RulesTooBroad(f"there are too many files below `{top}` to compare one that has several names")
            if is_folder:
                waiting += _listed(path) if path == top or path not in self._left_out else ()
            elif identity := linked_identity(path):
                found.setdefault(identity, []).append(names_of(path))
        return found


def _listed(folder: str) -> list[tuple[str, bool]]:
    """Return the paths in a folder and whether they are folders, without links; none if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [
                (f"{folder.rstrip('/')}/{entry.name}", entry.is_dir(follow_symlinks=False))
                for entry in entries
                if not entry.is_symlink()
            ]
    except OSError:
        return []


def _is_at(path: str, folder: str) -> bool:
    """Return whether a path is a folder or below it."""
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def linked_identity(path: str) -> Identity | None:
    """Return device and inode of a file with several names; `None` for any other."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 and stat.S_ISREG(status.st_mode) else None


def names_of(path: str) -> tuple[str, ...]:
    """Return the names of a path, in the form in which they are compared."""
    return tuple(name for name in folded(path).split("/") if name)


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


# -- names of files that other programs execute or read as instructions -----------------------------

# A hidden name (`.env`, `.github`, `.vscode`) is protected by its dot and is not listed here.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SUFFIXES = _words("""
    .appimage .applescript .bash .bat .cjs .class .cmd .coffee .com .command .cron .csh .cts .dll .dylib .egg
    .el .elc .ex .exe .exs .fish .groovy .hta .ipynb .jar .jl .js .jse .jsx .ksh .kts .lnk .lua .mjs .msi .mts
    .nu .phar .php .php5 .phtml .pl .pm .ps1 .psm1 .pth .py .pyc .pyd .pyi .pyo .pyw .pyx .pyz .r .rb .reg .run
    .scpt .scr .sh .so .tcl .ts .tsx .vbe .vbs .vim .war .wasm .whl .wsf .zsh
""")
"""Scripts, modules and programs."""
_BUILD_SUFFIXES = _words("""
    .bazel .bzl .cabal .cmake .csproj .fsproj .gemspec .gradle .mak .make .mk .ninja .nix .nuspec .podspec
    .props .sbt .sln .star .targets .tf .tofu .vbproj .vcxproj .xcconfig
""")
"""Build and infrastructure files."""
_SYSTEM_SUFFIXES = _words("""
    .automount .code-workspace .crontab .desktop .mdc .mount .plist .service .socket .sublime-project .timer
""")
"""Units and entries that a desktop, an init system or an editor executes."""
EXECUTED_NAMES = _words("""
    appfile berksfile brewfile build.gradle build.rs build.sbt build.xml capfile cartfile cmakelists.txt
    configure configure.ac configure.in crontab dangerfile default.nix dune-project earthfile fastfile gemfile
    gnumakefile go.mod go.work gradlew guardfile jakefile justfile makefile matchfile meson.build
    meson_options.txt module.bazel mvnw nextflow.config pipfile podfile pom.xml puppetfile rakefile rebar.config
    sconscript sconstruct setup.cfg settings.gradle snakefile stack.yaml steepfile taskfile.yaml taskfile.yml
    thorfile tiltfile vagrantfile wscript xmake.lua

    angular.json babel.config.json bower.json bun.lock bunfig.toml cargo.lock cargo.toml composer.json
    composer.lock conanfile.txt deno.json deno.jsonc deno.lock devbox.json environment.yml environment.yaml
    gemfile.lock go.sum gradle.properties lerna.json mise.toml npm-shrinkwrap.json nuget.config nx.json
    package-lock.json package.json pdm.lock pdm.toml pipfile.lock pixi.toml pnpm-lock.yaml pnpm-workspace.yaml
    poetry.lock poetry.toml pylock.toml pyproject.toml rush.json turbo.json uv.lock uv.toml vcpkg.json yarn.lock

    appveyor.yml azure-pipelines.yml azure-pipelines.yaml bitbucket-pipelines.yml buildspec.yml buildspec.yaml
    chart.yaml cloudbuild.yaml cloudbuild.json codefresh.yml codemagic.yaml devcontainer.json devfile.yaml
    fly.toml helmfile.yaml kustomization.yaml kustomization.yml lefthook.yml lefthook.yaml netlify.toml procfile
    pulumi.yaml render.yaml renovate.json samconfig.toml serverless.yml serverless.yaml skaffold.yaml
    vercel.json wercker.yml wrangler.toml

    alembic.ini ansible.cfg mypy.ini noxfile pip.conf pip.ini pylintrc pytest.ini ruff.toml supervisord.conf
    tox.ini uwsgi.ini

    agent.md agents.md agents.override.md claude.local.md claude.md copilot-instructions.md gemini.md mcp.json
    qwen.md warp.md

    __pycache__ hooks node_modules site-packages sitecustomize usercustomize
""")
"""Build files; lists of packages to install; pipelines and deployments; settings of tools that load code; instructions
to agents; folders whose files are executed or imported."""
EXECUTED_FAMILIES = re.compile(
    r"(docker-)?compose([.-].+)?\.ya?ml"
    r"|(dockerfile|containerfile|jenkinsfile|makefile|procfile|vagrantfile)([.-].+)?"
    r"|.+\.(dockerfile|containerfile|jenkinsfile|makefile)"
    r"|(requirements|constraints)([._-].*)?\.(txt|in)"
    r"|.+[._-]requirements\.(txt|in)"
    r"|.+\.(agent|chatmode|instructions|prompt)\.md"
    r"|lib.+\.(so|dylib)(\.\d+)+"
)
"""Names with variants: `compose.override.yaml`, `Dockerfile.dev`, `requirements-dev.txt`, `review.prompt.md`."""
EXECUTED_SUFFIXES = _SUFFIXES | _BUILD_SUFFIXES | _SYSTEM_SUFFIXES
