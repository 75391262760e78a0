"""Read a requirements file in place of pip: only pinned packages of the index, each with its hashes.

A path or an address would install what no hash of a release covers, and an option such as `--index-url` would choose
where packages come from; both belong in pip's own configuration, which is the user's. pip gets `for_pip`, never the
file: it reads comments, continued lines and options in ways of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from reyn.errors import RequirementsInvalid

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PLAIN = re.compile(rf"(?P<name>{_NAME})\s*(?P<extras>\[[A-Za-z0-9._, -]*\])?\s*(?P<versions>[^;@]*)(?P<marker>;.*)?")
_PINNED = re.compile(r"\(?\s*={2,3}\s*[A-Za-z0-9][A-Za-z0-9.!+_-]*\s*\)?")
_VERSIONS = re.compile(r"\(?\s*(?:(?:[=!~<>]=|===|[<>])\s*[A-Za-z0-9][A-Za-z0-9.!+_*-]*\s*,?\s*)*\)?")
_HASH = re.compile(r"--hash[= ]\s*(?P<hash>\S+)")
_STRONG = re.compile(r"sha(256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128})")
_COMMENT = re.compile(r"(^|\s)#.*$")
_PATH = re.compile(
    r"(\.{0,2}[/\\]|~|[A-Za-z]:[/\\]).*|.*\.(whl|zip|tar|tar\.gz|tgz|tar\.bz2|tar\.xz)(\s.*)?", re.DOTALL
)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!sha)\S*|.*@\s*\S*:.*|.*://.*", re.DOTALL)
_SPECIAL = re.compile(r"(?:^| )-|[^ -~]|[\\#]")
"""What pip would read as an option, a comment or a line that continues, or decode in its own way."""
_IGNORED_OPTIONS = ("--only-binary=:all:", "--only-binary :all:", "--require-hashes", "--prefer-binary")
"""Options that other programs write into such files, and that Reyn passes to pip itself or that need no effect."""


class Requirement(NamedTuple):
    """A package that a requirements file names.

    Attributes:
        name: Its name in normal form.
        text: The whole line without hashes.
        line: The number of the line.
        hashes: The hashes of its files.
    """

    name: str
    text: str
    line: int
    hashes: tuple[str, ...] = ()


def check_locked(text: str, file: str) -> list[Requirement]:
    """Return the packages of a requirements file, each pinned and with hashes.

    Raises:
        RequirementsInvalid: The first line that is not so, with the fix.
    """
    found = []
    for number, line in _logical_lines(text, file):
        requirement = _parsed(number, line, file)
        if requirement is None:
            continue
        if not requirement.hashes:
            raise RequirementsInvalid(f"{file}, line {number}: `{requirement.text}` has no hash", hint=_TO_LOCK)
        versions = _PLAIN.fullmatch(requirement.text)
        if versions is None or not _PINNED.fullmatch(versions["versions"].strip()):
            raise RequirementsInvalid(
                f"{file}, line {number}: `{requirement.text}` names no exact version", hint=_TO_LOCK
            )
        found.append(requirement)
    if not found:
        raise RequirementsInvalid(f"{file} names no package")
    return found


def check_plain(text: str, file: str) -> list[Requirement]:
    """Return the packages of a file without hashes, from which a locked one is made.

    Raises:
        RequirementsInvalid: A line names a path, an address or an option.
    """
    parsed = [_parsed(number, line, file) for number, line in _logical_lines(text, file)]
    found = [one for one in parsed if one is not None]
    if not found:
        raise RequirementsInvalid(f"{file} names no package", hint="Name one package on each line, such as `pypdf>=5`.")
    return found


def for_pip(requirements: Iterable[Requirement]) -> str:
    """Return the text of a file that pip reads as these packages."""
    return "".join(f"{' '.join((one.text, *(f'--hash={found}' for found in one.hashes)))}\n" for one in requirements)


_TO_LOCK = f"Write the names into the file beside it that ends with `.in`, and lock it. {RequirementsInvalid.hint}"


def _logical_lines(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Yield each line without its comment, joined with those that continue it, and its number."""
    begun, joined = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        begun = begun if joined else number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            joined += f"{line[:-1]} "
            continue
        whole = _COMMENT.sub("", joined + line).strip()
        joined = ""
        if whole:
            yield begun, whole
    if joined.strip():
        raise RequirementsInvalid(f"{file}, line {begun}: the last line ends with `\\`", hint="Remove the `\\`.")


def _parsed(number: int, line: str, file: str) -> Requirement | None:
    """Return the package that a line names; `None` for an option that is ignored."""
    place, shown = f"{file}, line {number}", line[:100]
    if line.startswith("-"):
        if line in _IGNORED_OPTIONS:
            return None
        raise RequirementsInvalid(
            f"{place}: the option `{shown}` is not allowed",
            hint="Remove it. The index of packages and other options belong in pip's own configuration.",
        )
    hashes = [found["hash"] for found in _HASH.finditer(line)]
    bare = " ".join(_HASH.sub("", line).split())
    if weak := next((one for one in hashes if not _STRONG.fullmatch(one)), ""):
        raise RequirementsInvalid(
            f"{place}: `{weak[:80]}` is no SHA-256 hash", hint="Write `--hash=sha256:` and 64 digits."
        )
    if "${" in bare:
        raise RequirementsInvalid(f"{place}: `{shown}` has a variable", hint="Write the package itself.")
    is_path = "://" not in bare and _PATH.fullmatch(bare.partition(";")[0].rstrip()) is not None
    if is_path or _ADDRESS.fullmatch(bare):
        what = "a path" if is_path else "an address"
        raise RequirementsInvalid(
            f"{place}: `{shown}` names {what}, which no release of a package covers",
        )
    match = _PLAIN.fullmatch(bare)
    if match is None or _SPECIAL.search(bare) or not _VERSIONS.fullmatch(match["versions"].strip()):
        raise RequirementsInvalid(
            f"{place}: `{shown}` is no requirement", hint="Write a name and a version, such as `pypdf==5.1.0`."
        )
    return Requirement(re.sub(r"[-_.]+", "-", match["name"]).lower(), bare, number, tuple(hashes))
