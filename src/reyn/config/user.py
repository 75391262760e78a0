"""The user's own files outside of all projects: `~/.config/reyn/config.yaml` and `~/.config/reyn/journal.key`.

Reyn rewrites only the sections `secrets` and `projects` of the configuration; the rest of the file stays as it is, with
its comments. A journal that Reyn creates holds a mark that only the key can make. A journal without one came with a
project, or from another user or machine: its runs and standing approvals are not the user's own.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from reyn.config.models import ModelEntry
from reyn.documents import Codes, Document, DocumentError, TrustClasses, check_keys, parse_yaml, trust_classes
from reyn.errors import ConfigInvalid, Finding, OriginInvalid, UserConfigUnavailable
from reyn.errors.codes import CONFIG_INVALID
from reyn.private_files import PrivateFile, user_folder
from reyn.secrets.handles import is_handle, validate_origin

if TYPE_CHECKING:
    from pathlib import Path


_CODES = Codes(unknown=CONFIG_INVALID, wrong=CONFIG_INVALID)
_KEY_BYTES = 32
_NONCE_BYTES = 16
_PURPOSE = b"reyn journal\0"
_SEALED = b"reyn seal\0"


def check_document(document: Document, shape: type[msgspec.Struct]) -> list[Finding]:
    """Return every error in one configuration source. A required key may come from another source."""
    if not isinstance(document.value, dict):
        return [
            document.finding(
                CONFIG_INVALID, f"the file must be a mapping of keys to values, not {_name(document.value)}"
            )
        ]
    return check_keys(document, shape, _CODES)


def _name(value: object) -> str:
    return "a list" if isinstance(value, list) else repr(value)


class TrustEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user's decision about a project. It is valid while `wants`, a digest of its settings, is the same."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="wants trusted")

    wants: Annotated[
        str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z", description="the digest of the settings that need trust")
    ]
    trusted: bool = True


class UserConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the user configuration.

    Attributes:
        models: Models for every project, as in `reyn.yaml`. A project's entry of the same name is merged over it.
        secrets: The origins that a secret may be sent to, by handle: `secret://OPENAI_API_KEY:
            [https://api.openai.com]`. Written by `reyn secret allow` and by the first use of a secret.
        projects: The projects that you trust or declined to trust, by path. Written by `reyn trust`.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(entry="models", plain="secrets", section="projects")

    models: dict[str, ModelEntry] = {}
    secrets: dict[str, tuple[str, ...]] = {}
    projects: dict[str, TrustEntry] = {}


class UserConfigFile:
    """Reads and updates the user configuration. It is also where the origins of secrets are stored."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file = PrivateFile(path, UserConfigUnavailable, is_confidential=False) if path else None

    def __repr__(self) -> str:
        return f"UserConfigFile({str(self.path)!r})"

    def document(self) -> Document | None:
        """Return the file as a document; `None` if it does not exist or is empty.

        Raises:
            ConfigInvalid: Lists every error with its position.
            UserConfigUnavailable: The file cannot be read, or other users can change it.
        """
        return self._parse(self._file.read() if self._file else None)

    def read(self) -> UserConfig:
        """Return the validated contents; see `document`."""
        return self._convert(self.document())

    # -- origins of secrets ---------------------------------------------------------------------------

    def allowed(self, handle: str) -> tuple[str, ...]:
        return tuple(validate_origin(origin) for origin in self.read().secrets.get(handle, ()))

    def allow(self, handle: str, origin: str) -> None:
        def add(config: UserConfig) -> UserConfig:
            origins = tuple(dict.fromkeys((*config.secrets.get(handle, ()), origin)))
            return msgspec.structs.replace(config, secrets=config.secrets | {handle: origins})

        self._update(add)

    def revoke(self, handle: str, origin: str | None = None) -> tuple[str, ...]:
        removed: tuple[str, ...] = ()

        def remove(config: UserConfig) -> UserConfig:
            nonlocal removed
            bound = config.secrets.get(handle, ())
            removed = tuple(each for each in bound if origin in (None, validate_origin(each)))
            others = {key: origins for key, origins in config.secrets.items() if key != handle}
            rest = tuple(each for each in bound if each not in removed)
            return msgspec.structs.replace(config, secrets=others | ({handle: rest} if rest else {}))

        if self.read().secrets.get(handle):
            self._update(remove)
        return removed

    # -- trusted projects -----------------------------------------------------------------------------

    def decide(self, root: Path, entry: TrustEntry | None) -> bool:
        """Store or, with `None`, remove the decision about a project. Returns whether there was one before."""
        path, existed = str(root), False

        def replace(config: UserConfig) -> UserConfig:
            nonlocal existed
            existed = path in config.projects
            others = {key: one for key, one in config.projects.items() if key != path}
            return msgspec.structs.replace(config, projects=others | ({path: entry} if entry else {}))

        if entry is not None or path in self.read().projects:
            self._update(replace)
        return existed

    # -- the file -------------------------------------------------------------------------------------

    def _parse(self, content: bytes | None) -> Document | None:
        if content is None:
            return None
        try:
            text = content.decode("utf-8-sig").replace("\r\n", "\n")
            document = parse_yaml(text, str(self.path))
        except UnicodeDecodeError as error:
            raise _invalid(Finding(str(self.path), 1, 1, CONFIG_INVALID, "the file is not UTF-8")) from error
        except DocumentError as error:
            raise _invalid(error.finding) from error
        if document.value is None:
            return None
        if findings := [*check_document(document, UserConfig), *_check_secrets(document)]:
            raise _invalid(*findings)
        return document

    @staticmethod
    def _convert(document: Document | None) -> UserConfig:
        return UserConfig() if document is None else msgspec.convert(document.value, UserConfig)

    def _update(self, transform: Callable[[UserConfig], UserConfig]) -> None:
        if self._file is None:
            raise UserConfigUnavailable("there is no folder for the user configuration", hint="Set `HOME`.")

        def rewrite(content: bytes | None) -> bytes | None:
            document = self._parse(content)
            before = self._convert(document)
            after = transform(before)
            if after == before:
                return None
            text = "" if content is None else content.decode("utf-8-sig").replace("\r\n", "\n")
            for key in ("secrets", "projects"):
                if getattr(after, key) != getattr(before, key):
                    text = _replace_section(text, key, msgspec.to_builtins(getattr(after, key)), str(self.path))
            if self._convert(self._parse(text.encode())) != after:
                raise self._unwritable()
            return text.encode()

        try:
            self._file.update(rewrite)
        except ConfigInvalid as error:
            raise self._unwritable() from error

    def _unwritable(self) -> UserConfigUnavailable:
        hint = "Write its top level as one key a line (`models:`, `secrets:`, `projects:`), and fix its errors."
        return UserConfigUnavailable(f"cannot edit `{self.path}`", hint=hint)


def user_config(environ: Mapping[str, str] | None = None) -> UserConfigFile:
    """Return the configuration of the user who runs this process. Without a home directory there is none."""
    try:
        return UserConfigFile(user_folder(os.environ if environ is None else environ) / "config.yaml")
    except RuntimeError:
        return UserConfigFile(None)


def _invalid(*findings: Finding) -> ConfigInvalid:
    return ConfigInvalid("the user configuration has errors:", list(findings))


def _check_secrets(document: Document) -> list[Finding]:
    bindings = document.value.get("secrets") if isinstance(document.value, dict) else None
    if not isinstance(bindings, dict):
        return []
    findings = []
    for handle, origins in bindings.items():
        if not is_handle(handle):
            message = "a key of `secrets` must be a handle: `secret://NAME` or `env://VARIABLE`"
            findings.append(document.finding(CONFIG_INVALID, message, "secrets", handle))
        for index, origin in enumerate(origins if isinstance(origins, list) else ()):
            try:
                validate_origin(origin if isinstance(origin, str) else "")
            except OriginInvalid as error:
                findings.append(
                    document.finding(CONFIG_INVALID, error.message, "secrets", handle, index, fix=error.hint)
                )
    return findings


def _replace_section(text: str, key: str, value: dict[str, Any], file: str) -> str:
    """Return the text with one top-level section rendered anew; comments outside of it stay."""
    lines = text.split("\n")
    import yaml

    document = parse_yaml(text, file)
    starts = sorted(document.at(name).line for name in document.value or ())
    rendered = yaml.safe_dump({key: value}, allow_unicode=True, sort_keys=True, width=1_000) if value else ""
    section = rendered.rstrip("\n").split("\n") if rendered else []
    if key not in (document.value or {}):
        while lines and not lines[-1].strip():
            lines.pop()
        return "\n".join([*lines, *section, ""])
    start = document.at(key).line - 1
    end = next((line - 1 for line in starts if line - 1 > start), len(lines))
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1  # blank lines and comments before the next key belong to that key
    return "\n".join([*lines[:start], *section, *lines[end:]]).rstrip("\n") + "\n"


class JournalKey:
    """Makes and recognizes the marks of the user's journals, and seals other files in state folders.

    Without a writable home directory there is no key. Then there are no marks, and every journal counts as the
    user's own, because Reyn cannot check who created it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file = PrivateFile(path, UserConfigUnavailable, is_confidential=True) if path else None
        self._loaded: bytes | None = None

    def __repr__(self) -> str:
        return f"JournalKey({str(self.path)!r})"

    def new_mark(self) -> bytes | None:
        """Return a mark for a journal; `None` if no key can be stored."""
        key, nonce = self._key(), secrets.token_bytes(_NONCE_BYTES)
        return None if key is None else nonce + _mac(key, nonce)

    def recognizes(self, marks: list[bytes]) -> bool:
        """Return whether the user's key made one of the marks."""
        key = self._key()
        return key is None or any(
            hmac.compare_digest(mark[_NONCE_BYTES:], _mac(key, mark[:_NONCE_BYTES])) for mark in marks
        )

    def seal(self, content: bytes) -> str:
        """Return what only the user's key makes of some content; empty if no key can be stored."""
        key = self._key()
        return "" if key is None else hmac.digest(key, _SEALED + content, "sha256").hex()

    def _key(self) -> bytes | None:
        """Return the key, which is created on first use; `None` if that is impossible.

        Raises:
            UserConfigUnavailable: Other users have access to the key, or it is damaged.
        """
        if self._loaded is None and self._file is not None:
            content = self._file.read() or self._created(self._file)
            if content is not None and len(content) != _KEY_BYTES:
                raise self._file.refusal(self._file.path, "is not a key", "Restore it from a backup, or delete it.")
            self._loaded = content
        return self._loaded

    @staticmethod
    def _created(file: PrivateFile) -> bytes | None:
        try:
            file.update(lambda content: None if content else secrets.token_bytes(_KEY_BYTES))
        except UserConfigUnavailable as error:
            if isinstance(error.__cause__, OSError):
                return None
            raise
        return file.read()


def journal_key() -> JournalKey:
    """Return the key of the user who runs this process. Without a home directory there is none."""
    try:
        return JournalKey(user_folder(os.environ) / "journal.key")
    except RuntimeError:
        return JournalKey(None)


def _mac(key: bytes, nonce: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE + nonce, "sha256")
