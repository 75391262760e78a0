"""Make environments: the only place that installs packages, and only when the user runs the command for it.

pip installs wheels of exactly the listed hashes. A new environment is made beside the one in use and replaces it when
it is complete, so a failure leaves everything as it was.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from reyn.errors import EnvironmentNotMade, EnvironmentUnavailable, RequirementsInvalid
from reyn.folders import open_beneath, remove_tree, replace_beneath, take_lock
from reyn.journal import digest
from reyn.packages.content import content_of, stamps_of
from reyn.packages.declared import ENVIRONMENTS, EnvironmentRecord, EnvironmentStatus, PackageEnvironments
from reyn.packages.installation import find_installation
from reyn.packages.requirements import check_locked, check_plain, for_pip

_Report = Callable[[str], None]
PLAIN = ".in"
"""The suffix of the file without hashes that a requirements file is locked from."""
_WHEELS = ("--only-binary", ":all:")
_STARTS_NOTHING = """
import runpy, sys

def refuse(event, args):
    is_start = event.startswith(("os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "subprocess."))
    if is_start and not (args and str(args[0]).endswith("/keyring")):
        raise PermissionError("a package is no wheel: to build it would run its code")

sys.addaudithook(refuse)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs pip such that it starts no program but that of the user's keyring.

`--only-binary` does not cover what a package needs from an address.
"""
_STEPS = {"Collecting ": "collecting", "Downloading ": "downloading", "Building wheel": "building", "Installing ": ""}
_FROM_SOURCE = (
    "If the index has it as source only, it can be built: that runs its code with your rights, outside of any sandbox. "
    f"{EnvironmentNotMade.hint}"
)


def make_environment(
    packages: PackageEnvironments, name: str, *, allow_source: bool = False, report: _Report = lambda text: None
) -> EnvironmentStatus:
    """Make an environment from its requirements file, in place of the one that there may be.

    Args:
        packages: The environments of the project.
        name: The environment.
        allow_source: Whether packages without a wheel are built from source, which runs their code.
        report: Receives a line of progress now and then.

    Raises:
        EnvironmentUnknown: It is not declared.
        RequirementsInvalid: The requirements have no hashes, or name something else than packages of the index.
        EnvironmentNotMade: pip failed, or another process makes it now.
    """
    if packages.declared(name).path:
        raise EnvironmentNotMade(
            f"`{name}` is a folder that exists; Reyn does not change it",
            hint="Install packages with the programs of that environment, or declare `requirements` instead of `path`.",
        )
    text = packages.requirements_of(name)
    listed = for_pip(check_locked(text, packages.declared(name).requirements))
    with packages.folder(create=True) as folder, _locked(folder, name):
        assert folder is not None
        _remove_old(packages, folder, name)
        made = f"{name}-{secrets.token_hex(4)}"
        try:
            path = packages.state / ENVIRONMENTS / made
            report(f"creating the environment {name} for Python {platform.python_version()}")
            _run([sys.executable, "-P", "-m", "venv", "--without-pip", str(path)], packages.state, report)
            _install(path, listed, report, allow_source=allow_source)
            report("recording its content")
            packages.store(name, _record(path, text))
        except BaseException:
            remove_tree(folder, made)
            raise
        _remove_old(packages, folder, name)
    return packages.status(name)


def lock_requirements(packages: PackageEnvironments, name: str, *, report: _Report = lambda text: None) -> list[str]:
    """Write the requirements file of an environment, with versions and hashes, from the file without them.

    The hashes are those of the wheels for this Python on this machine. Returns the locked requirements.

    Raises:
        EnvironmentUnknown: It is not declared.
        RequirementsInvalid: The file names something else than packages of the index.
        EnvironmentNotMade: pip failed: the packages do not resolve, or one has no wheel.
    """
    file = packages.declared(name).requirements
    if not file or file.endswith(PLAIN):
        found = f"its requirements are `{file}` itself" if file else "it has a `path`"
        message = f"`{name}` has no requirements file to write: {found}"
        raise RequirementsInvalid(message, hint="Declare `requirements: NAME.txt`, and write the names into `NAME.in`.")
    text = packages.requirements_of(name, PLAIN)
    source = os.path.splitext(file)[0] + PLAIN  # noqa: PTH122 - text in, text out
    listed = for_pip(check_plain(text, source))
    with _written(listed) as (folder, plain):
        report(f"resolving {source}")
        result = folder / "report.json"
        options = ("install", "--dry-run", "--ignore-installed", *_WHEELS, "--report", str(result), "-r", str(plain))
        _run([*_pip(sys.executable, "-c", _STARTS_NOTHING), *options], folder, report)
        lines = sorted(_locked_line(one) for one in msgspec.json.decode(result.read_bytes())["install"])
    system = f"Python {'.'.join(platform.python_version_tuple()[:2])} on {platform.system()} {platform.machine()}"
    header = f"# Locked from {os.path.basename(source)} for {system}.\n"  # noqa: PTH119 - text in
    replace_beneath(packages.root, file, (header + "".join(f"{line}\n" for line in lines)).encode())
    return lines


def _locked_line(installed: dict[str, Any]) -> str:
    metadata, hashes = installed["metadata"], installed["download_info"].get("archive_info", {}).get("hashes", {})
    if "sha256" not in hashes:
        raise EnvironmentNotMade(f"pip reports no SHA-256 of `{metadata['name']}`", hint="Update pip.")
    return f"{metadata['name'].lower()}=={metadata['version']} --hash=sha256:{hashes['sha256']}"


@contextmanager
def _locked(folder: int | None, name: str) -> Iterator[None]:
    """Keep other processes from making the same environment."""
    assert folder is not None
    handle = open_beneath(folder, f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not take_lock(handle):
            message = f"another process is making the environment `{name}`"
            raise EnvironmentNotMade(message, hint="Wait until it has ended, then try again.")
        yield
    finally:
        os.close(handle)


def _remove_old(packages: PackageEnvironments, folder: int, name: str) -> None:
    """Remove the folders of an environment that are not in use: earlier ones, and those that were not completed."""
    record = packages.record(name)
    for one in packages.leftovers(name):
        if record is None or one != record.folder:
            remove_tree(folder, one)


def _record(path: Path, text: str) -> EnvironmentRecord:
    installation = find_installation(path)
    content = content_of(installation)
    return EnvironmentRecord(path.name, content, stamps_of(installation), digest(text.encode()))


def _install(path: Path, text: str, report: _Report, *, allow_source: bool) -> None:
    try:
        program = find_installation(path).program
    except EnvironmentUnavailable as error:  # this Python cannot make a virtual environment
        raise EnvironmentNotMade(error.message) from error
    with _written(text) as (folder, file):
        guarded, wheels = ((), ()) if allow_source else (("-c", _STARTS_NOTHING), _WHEELS)
        _run([*_pip(program, *guarded), "install", "--require-hashes", *wheels, "-r", str(file)], folder, report)


@contextmanager
def _written(text: str) -> Iterator[tuple[Path, Path]]:
    """Yield a temporary folder, and a file in it with requirements for pip."""
    with tempfile.TemporaryDirectory(prefix="reyn-env-") as name:
        file = Path(name, "requirements.txt")
        file.write_text(text)
        yield Path(name), file


def _pip(program: str, *options: str) -> list[str]:
    """Return the command of pip for a Python: that of this environment, or else the one that Python ships."""
    installed, shipped, runners = find_spec("pip"), find_spec("ensurepip"), list[Path]()
    if installed is not None and installed.origin:
        runner = Path(installed.origin).with_name("__pip-runner__.py")
        runners += [runner] if runner.exists() else []
    if shipped is not None and shipped.origin:
        runners += (wheel / "pip" for wheel in Path(shipped.origin).with_name("_bundled").glob("pip-*.whl"))
    if not runners:
        raise EnvironmentNotMade("pip is not installed", hint="Install pip into the environment of Reyn.")
    return [program, "-P", *options, str(runners[0])]


def _run(command: list[str], folder: Path, report: _Report) -> None:
    """Run a program, and report what it does.

    Raises:
        EnvironmentNotMade: It failed; the message has the reason.
    """
    environ = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "PIP_PYTHON")}
    environ |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off"}
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    lines: list[str] = []
    with subprocess.Popen(  # noqa: S603 - the interpreter of this environment, with its own modules
        command, stdin=null, stdout=pipe, stderr=subprocess.STDOUT, env=environ, cwd=folder, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in map(_decoded, process.stdout):
                lines.append(line)
                if shown := _progress(line):
                    report(shown)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise _failure(lines, process.returncode, may_be_source="--only-binary" in command)


def _decoded(line: bytes) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", line.decode("utf-8", "replace").rstrip())
    return "".join(char for char in text if char.isprintable())


def _progress(line: str) -> str:
    """Return a line of progress for a line that pip prints; empty if it is not one to show."""
    text = line.strip()
    for begin, verb in _STEPS.items():
        if text.startswith(begin):
            return f"{verb} {text.removeprefix(begin).split(' (')[0]}"[:120] if verb else text[:1].lower() + text[1:120]
    return ""


def _failure(lines: list[str], code: int, *, may_be_source: bool) -> EnvironmentNotMade:
    """Return the error for what pip has printed."""
    text = "\n".join(lines)
    if "DO NOT MATCH THE HASHES" in text:
        found = re.search(r"^\s+(\S+) (?:from|\(from)", text, re.MULTILINE)
        named = f"`{found[1]}`" if found else "a package"
        return EnvironmentNotMade(
            f"the file that the index has for {named} does not have the hash of the requirements",
            hint="The package was replaced, or the hash is of a file for another machine: lock the requirements anew.",
        )
    if found := re.search(r"These do not:\s+([\w.-]+)(?:.*?\(from ([\w.-]+))?", text):
        needed = f", which `{found[2]}` needs" if found[2] else ""
        return EnvironmentNotMade(
            f"the requirements have no version and hash of `{found[1]}`{needed}",
            hint=f"Lock the requirements, so that they name every package that is needed. {EnvironmentNotMade.hint}",
        )
    if found := re.search(r"No matching distribution found for (\S+)", text):
        version = ".".join(platform.python_version_tuple()[:2])
        what = "no wheel" if may_be_source else "no release"
        message = (
            f"the index has {what} of `{found[1]}` for Python {version} on {platform.system()} {platform.machine()}"
        )
        return EnvironmentNotMade(message, hint=_FROM_SOURCE if may_be_source else "Check the name and the version.")
    if "ResolutionImpossible" in text or "conflicting dependencies" in text:
        found = re.search(r"Cannot install (.*) because", text)
        return EnvironmentNotMade(
            f"the requirements contradict each other{f': {found[1]}' if found else ''}"[:400],
            hint="Change the versions of these packages, and lock the requirements anew.",
        )
    errors = [line.strip() for line in lines if "error" in line.lower()] or [
        line.strip() for line in lines if line.strip()
    ]
    return EnvironmentNotMade(f"pip failed: {(errors or [f'exit code {code}'])[-1]}"[:400])
