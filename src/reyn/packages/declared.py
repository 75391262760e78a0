"""The environments that a project declares: where each is, whether it can be used, and what it contains.

One that Reyn makes is a folder in the state folder, with a record of its content that is written last. The record of
one that exists elsewhere only spares hashing it again. Nothing here makes or changes an environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.config.user import journal_key
from reyn.documents import DocumentError, nearest_hint, read_text
from reyn.errors import EnvironmentChanged, EnvironmentUnavailable, EnvironmentUnknown, RequirementsInvalid, ReynError
from reyn.folders import OpenFolder, make_folders, open_beneath, replace_in
from reyn.journal import digest
from reyn.journal.state_folder import open_state
from reyn.packages.content import Package, content_of, packages_of, stamps_of
from reyn.packages.installation import Installation, find_installation

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.config.environments import EnvironmentSettings

ENVIRONMENTS = "environments"
"""The folder of environments in the state folder."""
EnvironmentState = Literal["ready", "outdated", "missing", "incomplete", "unusable", "changed"]
"""`outdated`: the requirements have changed since it was made. `incomplete`: making it was interrupted."""


class PackageEnvironment(msgspec.Struct, frozen=True):
    """An environment that can be used: its name, the hash of its content, and what belongs to it."""

    name: str
    content: str
    installation: Installation


class EnvironmentStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A declared environment.

    Attributes:
        name: Its name.
        source: The requirements file or the folder, as it is declared.
        state: Whether it can be used.
        python: The version of its Python.
        content: The hash of its content.
        packages: The installed distributions.
        reason: Why it cannot be used, or should be made again.
        folder: Where it is.
    """

    name: str
    source: str
    state: EnvironmentState
    python: str = ""
    content: str = ""
    packages: tuple[Package, ...] = ()
    reason: str = ""
    folder: str = ""


class EnvironmentRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored about an environment.

    Attributes:
        folder: The name of its folder in `.reyn/environments`, or the path of one elsewhere.
        content: The hash of its content.
        stamps: The digest of the sizes and times of its files when the content was hashed.
        requirements: The digest of the requirements file that it was made from.
        seal: Shows that this user stored it: an archive of a project may bring a state folder.
    """

    folder: str
    content: str
    stamps: str
    requirements: str = ""
    seal: str = ""


_FOLDER = re.compile(r"[a-z0-9_-]{1,80}")


class PackageEnvironments:
    """The environments of a project.

    Args:
        settings: The declared ones, by name.
        root: The project's folder.
        state: Its state folder.
        ignored: The names of those that have no effect, because the project is not trusted.
    """

    def __init__(
        self, settings: Mapping[str, EnvironmentSettings], root: Path, state: Path, ignored: Collection[str] = ()
    ) -> None:
        self.settings = settings
        self.root = root
        self.state = state
        self._ignored = ignored
        self._key = journal_key()

    def find(self, name: str) -> PackageEnvironment:
        """Return an environment, as it is now.

        Raises:
            EnvironmentUnavailable: It is not declared, not made, incomplete, or for another Python.
            EnvironmentChanged: A program has changed what was installed in it.
        """
        settings = self.settings.get(name)
        if settings is None:
            message, hint = self._undeclared(name)
            raise EnvironmentUnavailable(message, hint=hint)
        record = self.record(name)
        try:
            if settings.path:
                return self._found(name, find_installation(self.root / os.path.expanduser(settings.path)), record)  # noqa: PTH111
            if record is None or not _FOLDER.fullmatch(record.folder):
                state = "half made, or was not made by this user" if self.leftovers(name) else "not made"
                raise EnvironmentUnavailable(f"it is {state}")
            made = find_installation(self.state / ENVIRONMENTS / record.folder)
            return self._found(name, made, record, is_made=True)
        except EnvironmentUnavailable as error:
            raise type(error)(f"the environment `{name}` cannot be used: {error.message}") from error

    def find_once(self, name: str, found: dict[str, PackageEnvironment]) -> PackageEnvironment:
        """Return an environment; it is looked at once for each `found`."""
        if name not in found:
            found[name] = self.find(name)
        return found[name]

    def _undeclared(self, name: str) -> tuple[str, str | None]:
        if name in self._ignored:
            return f"the environment `{name}` is ignored: the project is not trusted", "Trust the project."
        near = nearest_hint(name, self.settings)
        return f"`environments` in reyn.yaml declares no `{name}`", near or None

    def _found(
        self, name: str, installation: Installation, record: EnvironmentRecord | None, *, is_made: bool = False
    ) -> PackageEnvironment:
        """Return an environment with its content, which is hashed only if a file may have changed."""
        folder, stamps = installation.root, stamps_of(installation)
        if is_made:
            folder = os.path.basename(folder)  # noqa: PTH119 - text in, text out
        if record is not None and (record.folder, record.stamps) == (folder, stamps):
            return PackageEnvironment(name, record.content, installation)
        content = content_of(installation)
        if is_made and record is not None and content != record.content:
            raise EnvironmentChanged("its files were changed after it was made")
        requirements = record.requirements if record is not None and is_made else ""
        with suppress(ReynError, OSError):  # it is hashed again next time
            self.store(name, EnvironmentRecord(folder, content, stamps, requirements))
        return PackageEnvironment(name, content, installation)

    # -- reports --------------------------------------------------------------------------------------

    def status(self, name: str) -> EnvironmentStatus:
        """Return whether a declared environment can be used, and what it contains.

        Raises:
            EnvironmentUnknown: It is not declared.
        """
        settings = self.declared(name)
        source = settings.path or settings.requirements
        try:
            found = self.find(name)
        except EnvironmentUnavailable as error:
            record = self.record(name)
            state: EnvironmentState = "changed" if isinstance(error, EnvironmentChanged) else "unusable"
            if record is None and settings.requirements:
                state = "incomplete" if self.leftovers(name) else "missing"
            return EnvironmentStatus(name, source, state, reason=error.message)
        reason = self._outdated(settings, self.record(name))
        installation = found.installation
        return EnvironmentStatus(
            name,
            source,
            "outdated" if reason else "ready",
            installation.version,
            found.content,
            packages_of(installation),
            reason,
            installation.root,
        )

    def declared(self, name: str) -> EnvironmentSettings:
        """Return the settings of an environment.

        Raises:
            EnvironmentUnknown: It is not declared.
        """
        if (settings := self.settings.get(name)) is not None:
            return settings
        message, hint = self._undeclared(name)
        raise EnvironmentUnknown(message, hint=hint)

    def requirements_of(self, name: str, suffix: str = "") -> str:
        """Return the text of the requirements file of an environment, or of the file with another suffix beside it.

        Raises:
            RequirementsInvalid: The file cannot be read, or is outside of the project.
        """
        file = self.declared(name).requirements
        file = os.path.splitext(file)[0] + suffix if suffix else file  # noqa: PTH122 - text in, text out
        try:
            return read_text(self.root / file, file, inside=self.root)
        except DocumentError as error:
            raise RequirementsInvalid(f"`{file}`: {error.finding.message}") from error

    def _outdated(self, settings: EnvironmentSettings, record: EnvironmentRecord | None) -> str:
        if not settings.requirements or record is None:
            return ""
        try:
            text = read_text(self.root / settings.requirements, settings.requirements, inside=self.root)
        except DocumentError as error:
            return error.finding.message
        if digest(text.encode()) == record.requirements:
            return ""
        return f"`{settings.requirements}` has changed since it was made"

    # -- records --------------------------------------------------------------------------------------

    def record(self, name: str) -> EnvironmentRecord | None:
        """Return what this user has stored about an environment; `None` if nothing is, or if it cannot be read."""
        with suppress(OSError, msgspec.MsgspecError), self.folder() as folder:
            if folder is not None:
                handle = open_beneath(folder, f"{name}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                with os.fdopen(handle, "rb") as file:
                    found = msgspec.json.decode(file.read(100_000), type=EnvironmentRecord)
                return found if found == self._sealed(name, found) else None
        return None

    def _sealed(self, name: str, record: EnvironmentRecord) -> EnvironmentRecord:
        """Return a record with the seal of the user."""
        bound = msgspec.json.encode((name, msgspec.structs.replace(record, seal="")))
        return msgspec.structs.replace(record, seal=self._key.seal(bound))

    def store(self, name: str, record: EnvironmentRecord) -> None:
        """Store what is known about an environment."""
        with self.folder(create=True) as folder:
            assert folder is not None
            replace_in(folder, f"{name}.json", [msgspec.json.encode(self._sealed(name, record))], mode=0o600)

    def leftovers(self, name: str) -> list[str]:
        """Return the names of the folders of an environment, whether or not they are complete."""
        with self.folder() as folder:
            names = os.listdir(folder) if folder is not None else []  # noqa: PTH208 - a descriptor
        return [one for one in names if re.fullmatch(rf"{re.escape(name)}-[0-9a-f]{{8}}", one)]

    @contextmanager
    def folder(self, *, create: bool = False) -> Iterator[int | None]:
        """Open the folder of all environments; `None` if there is none."""
        state = open_state(self.state, create=create)
        if state is None:
            yield None
            return
        with state as above:
            try:
                handle = make_folders(above, ENVIRONMENTS, 0o700) if create else open_beneath(above, ENVIRONMENTS)
            except FileNotFoundError:
                yield None
                return
            with OpenFolder("", handle) as opened:
                yield opened
