"""Wheels of made-up packages, a project that declares an environment with them, and virtual environments."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec

from reyn.config.environments import EnvironmentSettings
from reyn.packages import PackageEnvironments
from reyn.packages.declared import EnvironmentRecord


def write_wheel(folder: Path, name: str, version: str = "1.0", *, needs: tuple[str, ...] = (), code: str = "") -> str:
    """Write a wheel with one module; return the line of a requirements file that names it."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": code or f"VERSION = {version!r}\n",
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {one}\n" for one in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in (*files.items(), (f"{info}/RECORD", f"{record}{info}/RECORD,,\n")):
            wheel.writestr(zipfile.ZipInfo(file, (2020, 1, 1, 0, 0, 0)), text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def write_source(folder: Path, name: str, version: str = "1.0") -> str:
    """Write a source release of a package whose setup leaves a file behind; return its requirement."""
    import io
    import tarfile

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    setup = f"from pathlib import Path\nPath({str(folder / 'executed')!r}).touch()\n"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in (
            ("setup.py", setup),
            ("PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        ):
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def declared(root: Path, **settings: EnvironmentSettings) -> PackageEnvironments:
    """Return the environments of a project; by default `office`, from `office.txt`."""
    found = settings or {"office": EnvironmentSettings(requirements="office.txt")}
    return PackageEnvironments(found, root, root / ".reyn")


def existing(root: Path, folder: Path) -> PackageEnvironments:
    """Return the environments of a project that declares one that exists."""
    return declared(root, office=EnvironmentSettings(path=str(folder)))


def seal(root: Path) -> None:
    """Let the environment `office` of a project be one that the user of this test made: each test has its own."""
    record = root / ".reyn/environments/office.json"
    declared(root).store("office", msgspec.json.decode(record.read_bytes(), type=EnvironmentRecord))


def make_venv(folder: Path, python: str = sys.executable, *options: str) -> Path:
    """Make a virtual environment without pip."""
    subprocess.run([python, "-m", "venv", "--without-pip", *options, str(folder)], check=True)
    return folder


def site_of(folder: Path) -> Path:
    return next(folder.glob("lib/python3*/site-packages"))


def offline(monkeypatch, wheels: Path) -> None:
    """Let pip find the wheels of a folder, and nothing else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
