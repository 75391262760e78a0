"""Requirements files of a project. The attacker writes the file, and the user locks it or makes an environment from it.

pip executes code of a package that it builds, with the rights of the user. The oracle is the parser of pip: it reads
what Reyn passes to it, and must find the packages that Reyn has found, and no option.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reyn.errors import EnvironmentNotMade, RequirementsInvalid
from reyn.packages import making
from reyn.packages.requirements import check_locked, check_plain, for_pip
from tests.packages.support import declared, offline, write_wheel
from tests.properties import examples

pytest.importorskip("pip")
HASH = f"--hash=sha256:{'a1' * 32}"
LINE = f"foo==1.0 {HASH}"
EVIL = ("--index-url=http://127.0.0.1:9/evil", "-e ./evil", "-r /etc/passwd", "--no-binary=:all:", "./evil.whl", "evil")
HIDDEN = {
    "after an option": "--prefer-binary {}\n{line}\n",
    "after the option of a value": "--only-binary=:all: {}\n{line}\n",
    "wheels of nothing": "--only-binary=:none:\n{line}\n",
    "behind a comment that does not go on": "{line} # c \\ \n{}\n",
    "after a line that does not go on": "{line} \\ \n{}\n",
    "in a marker": 'foo==1.0 ; python_version > "3" {} {hash}\n',
    "in extras": "foo[{}]==1.0 {hash}\n",
    "behind a separator": "{line} # c \x0b{}\n",
    "behind a separator of Unicode": "{line} # c \u2028{}\n",
    "in another coding": "# coding: utf-7\n{line} # +AAo-{}\n",
    "a marker that goes on": "foo==1.0 ; x\\ {hash}\n{}\n",
}


def read_by_pip(text: str, folder: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the packages that pip finds in a file, and the options that it would follow."""
    from pip._internal.index.collector import LinkCollector
    from pip._internal.index.package_finder import PackageFinder
    from pip._internal.models.format_control import FormatControl
    from pip._internal.models.search_scope import SearchScope
    from pip._internal.models.selection_prefs import SelectionPreferences
    from pip._internal.network.session import PipSession
    from pip._internal.req.req_file import parse_requirements

    file = folder / "r.txt"
    file.write_text(text)
    control = FormatControl(set(), {":all:"})
    session = PipSession()
    collector = LinkCollector(session=session, search_scope=SearchScope.create([], ["index"], no_index=False))
    preferences = SelectionPreferences(allow_yanked=True, format_control=control)
    finder = PackageFinder.create(link_collector=collector, selection_prefs=preferences)
    found = [*parse_requirements(str(file), session, finder=finder)]
    options = {
        "index": finder.index_urls,
        "links": finder.find_links,
        "hosts": [*finder.trusted_hosts],
        "binary": (control.no_binary, control.only_binary),
        "editable": [one for one in found if one.is_editable or one.constraint],
    }
    return [one.requirement for one in found], options


NO_OPTIONS = {"index": ["index"], "links": [], "hosts": [], "binary": (set(), {":all:"}), "editable": []}


def check(text: str, folder: Path) -> None:
    for read in (check_locked, check_plain):
        try:
            found = read(text, "office.txt")
        except RequirementsInvalid:
            continue
        names, options = read_by_pip(for_pip(found), folder)
        assert names == [one.text for one in found]
        assert options == NO_OPTIONS
        for one in found:
            assert not set("/\\@~:") & set(one.text.partition(";")[0])


@pytest.mark.parametrize("place", HIDDEN)
@pytest.mark.parametrize("evil", EVIL)
def test_pip_gets_no_option_and_no_package_that_was_not_checked(place: str, evil: str, tmp_path: Path):
    check(HIDDEN[place].format(evil, line=LINE, hash=HASH), tmp_path)


OPTIONS = ("--prefer-binary", "--only-binary", "=", ":none:", "${HOME}", "@", "://", "-", "==", ".whl")
SIGNS = (";", "#", " #", "\\", "\\\n", "\\ \n", "\n", "\r", " ", "\t", "\x0b", "\x85", "[", "]", '"', "'")
PIECES = st.sampled_from([*EVIL, LINE, HASH, "foo==1.0", "foo", *SIGNS, *OPTIONS])


@given(st.lists(PIECES, max_size=9).map("".join))
@example(f"--only-binary=:none:\n{LINE}\n")
@examples(60)
def test_pip_reads_what_was_checked(tmp_path_factory: pytest.TempPathFactory, text: str):
    check(text, tmp_path_factory.getbasetemp())
    check(f"{LINE}\n{text}", tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("work", [making.make_environment, making.lock_requirements])
def test_the_file_itself_is_never_passed_to_pip(work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    passed: list[str] = []

    def run(command: list[str], folder: Path, report: Any) -> None:
        if "-r" in command:
            passed.append(Path(command[command.index("-r") + 1]).read_text())
            raise InterruptedError

    monkeypatch.setattr(making, "_run", run)
    monkeypatch.setattr(making, "find_installation", lambda path: type("Found", (), {"program": "python3"}))
    for suffix in (".txt", ".in"):
        (tmp_path / f"office{suffix}").write_text(f"# coding: utf-7\n--prefer-binary\n{LINE}  # {EVIL[0]}\n")
    (tmp_path / ".reyn").mkdir(0o700)
    with pytest.raises(InterruptedError):
        work(declared(tmp_path), "office")
    assert passed == [f"{LINE}\n"]


BACKEND = """
from pathlib import Path
Path({mark!r}).touch()
def get_requires_for_build_wheel(settings=None):
    return []
"""


def test_a_package_that_needs_an_address_has_nothing_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`--only-binary` does not cover it: pip built what is there to find out what it needs."""
    root, mark = tmp_path / "project", tmp_path / "executed"
    (tmp_path / "beta").mkdir()
    root.mkdir()
    (tmp_path / "beta/evil.py").write_text(BACKEND.format(mark=str(mark)))
    (tmp_path / "beta/pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'evil'\nbackend-path = ['.']\n"
    )
    offline(monkeypatch, tmp_path / "wheels")
    write_wheel(tmp_path / "wheels", "alpha", needs=(f"beta @ file://{tmp_path}/beta",))
    (root / "office.in").write_text("alpha\n")
    with pytest.raises(EnvironmentNotMade, match="no wheel"):
        making.lock_requirements(declared(root), "office")
    assert not mark.exists()


STARTS = (
    "subprocess.run([sys.executable, '--version'])",
    "os.system('true')",
    "os.fork() or os._exit(0)",
    "os.posix_spawn('/bin/true', ['true'], {})",
    "os.execv('/bin/true', ['true'])",
    "os.spawnv(os.P_WAIT, '/bin/true', ['true'])",
)


def test_pip_starts_no_program(tmp_path: Path):
    """But that of the user's keyring, which does not come from a package."""
    (tmp_path / "keyring").symlink_to("/bin/true")
    keyring = f"subprocess.run([{str(tmp_path / 'keyring')!r}], check=True)"
    program = f"import os, subprocess, sys\n{keyring}\n" + "".join(
        f"try:\n    {start}\n    print('started')\nexcept PermissionError:\n    print('refused', flush=True)\n"
        for start in STARTS
    )
    (tmp_path / "pip.py").write_text(program)
    command = [sys.executable, "-P", "-c", making._STARTS_NOTHING, str(tmp_path / "pip.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused"] * len(STARTS)
