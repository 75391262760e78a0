"""The secrets file: permissions, links, concurrent writers, killed writers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from reyn.errors import SecretStoreUnavailable
from reyn.secrets import FileStore
from reyn.secrets.stores import SecretsFile, StoredSecrets, secrets_path

WRITER = """
import sys
from pathlib import Path
from reyn.secrets import FileStore
from reyn.secrets.stores import SecretsFile

store = FileStore(SecretsFile(Path(sys.argv[1])))
print("ready", flush=True)
for number in range(int(sys.argv[3])):
    store.set(f"{sys.argv[2]}_{number}", f"value-{number}-" + "x" * 200)
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def rejection(file: SecretsFile) -> SecretStoreUnavailable:
    """Return the error that both reading and writing raise."""
    with pytest.raises(SecretStoreUnavailable) as reading:
        file.read()
    with pytest.raises(SecretStoreUnavailable) as writing:
        FileStore(file).set("B", "another value")
    assert reading.value.message == writing.value.message
    return reading.value


def test_reading_creates_nothing(file: SecretsFile):
    assert file.read() == StoredSecrets()
    assert FileStore(file).remove("A") == ""
    assert not file.path.parent.parent.exists()


def test_only_the_owner_has_access_whatever_the_umask(file: SecretsFile):
    before = os.umask(0)
    try:
        FileStore(file).set("A", "some value")
    finally:
        os.umask(before)
    assert mode_of(file.path) == 0o600
    assert mode_of(file.path.parent) == 0o700
    assert {path.name: mode_of(path) for path in file.path.parent.iterdir()} == {
        "secrets.json": 0o600,
        ".secrets.lock": 0o600,
    }


def test_values_are_shared_between_instances(file: SecretsFile):
    store, other = FileStore(file), FileStore(SecretsFile(file.path))
    store.set("A", "first value")
    store.set("B", 'lines\nand "quotes" é')
    store.set("A", "second value")
    assert (other.get("A"), other.get("B"), other.get("C")) == ("second value", 'lines\nand "quotes" é', None)
    assert other.names() == {"A", "B"}
    assert other.remove("A") == str(file.path)
    assert other.remove("A") == ""
    assert store.names() == {"B"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_file_that_others_can_read_is_rejected_with_the_command_that_fixes_it(file: SecretsFile, mode: int):
    FileStore(file).set("A", "some value")
    file.path.chmod(mode)
    error = rejection(file)
    assert "other users can read" in error.message
    assert f"{mode:04o}" in error.message
    assert error.hint == f"Run: chmod 600 {file.path}"
    subprocess.run(error.hint.removeprefix("Run: ").split(), check=True)
    assert FileStore(file).get("A") == "some value"


def test_a_folder_that_others_can_write_to_is_rejected(file: SecretsFile):
    FileStore(file).set("A", "some value")
    file.path.parent.chmod(0o777)
    assert rejection(file).hint == f"Run: chmod 700 {file.path.parent}"
    file.path.parent.chmod(0o755)
    assert FileStore(file).get("A") == "some value"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner")
def test_a_file_of_another_user_is_rejected(file: SecretsFile):
    FileStore(file).set("A", "some value")
    os.chown(file.path, 12345, -1)
    assert "another user" in rejection(file).message


def test_symbolic_links_are_not_followed(file: SecretsFile, tmp_path: Path):
    elsewhere = SecretsFile(tmp_path / "elsewhere" / "secrets.json")
    FileStore(elsewhere).set("A", "some value")
    before = elsewhere.path.read_bytes()
    file.path.parent.mkdir(mode=0o700, parents=True)
    file.path.symlink_to(elsewhere.path)
    assert "is a symbolic link" in rejection(file).message
    file.path.unlink()
    shutil.rmtree(file.path.parent)
    file.path.parent.symlink_to(elsewhere.path.parent)
    assert "is a symbolic link" in rejection(file).message
    file.path.parent.unlink()
    file.path.parent.symlink_to(tmp_path / "nowhere")
    with pytest.raises(SecretStoreUnavailable, match="is a symbolic link"):
        FileStore(file).set("B", "another value")
    assert elsewhere.path.read_bytes() == before


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "fifo"])
def test_a_folder_or_fifo_is_rejected_without_blocking(file: SecretsFile, make):
    file.path.parent.mkdir(mode=0o700, parents=True)
    make(file.path)
    assert "is not a regular file" in rejection(file).message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"format": 2, "values": {"A": "sk-12345"}}',
        b'{"values": {"A": 7}}',
        b'{"values": {"A": "sk-12345"}, "more": 1}',
    ],
)
def test_a_damaged_file_is_rejected_unchanged_and_not_quoted(file: SecretsFile, content: bytes):
    file.path.parent.mkdir(mode=0o700, parents=True)
    file.path.write_bytes(content)
    file.path.chmod(0o600)
    error = rejection(file)
    assert "damaged" in error.message
    assert "sk-" not in error.message
    assert error.__cause__ is None
    assert file.path.read_bytes() == content


def test_an_unwritable_location_is_an_error(tmp_path: Path):
    (tmp_path / "config").write_text("")
    with pytest.raises(SecretStoreUnavailable, match=r"is a symbolic link or not a folder|Not a directory"):
        FileStore(SecretsFile(tmp_path / "config" / "reyn" / "secrets.json")).set("A", "some value")


def test_a_failed_write_leaves_the_old_file(file: SecretsFile, monkeypatch: pytest.MonkeyPatch):
    FileStore(file).set("A", "some value")

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SecretStoreUnavailable, match="No space left"):
        FileStore(file).set("A", "another value")
    assert FileStore(file).get("A") == "some value"
    assert sorted(path.name for path in file.path.parent.iterdir()) == [".secrets.lock", "secrets.json"]


def test_setting_the_same_value_writes_nothing(file: SecretsFile):
    FileStore(file).set("A", "some value")
    before = file.path.stat().st_ino
    FileStore(file).set("A", "some value")
    assert file.path.stat().st_ino == before


@pytest.mark.slow
def test_concurrent_writers_lose_no_updates(file: SecretsFile):
    writers = [writer(file.path, name, 40) for name in ("FIRST", "SECOND")]
    while any(process.poll() is None for process in writers):
        json.loads(file.path.read_text() if file.path.exists() else "{}")  # valid at every moment
    assert [process.wait() for process in writers] == [0, 0]
    for process in writers:
        process.stdout.close()
    assert FileStore(file).names() == {f"{name}_{number}" for name in ("FIRST", "SECOND") for number in range(40)}
    assert mode_of(file.path) == 0o600


@pytest.mark.slow
def test_a_killed_writer_leaves_a_valid_file_and_no_lock(file: SecretsFile):
    FileStore(file).set("STABLE", "some value")
    for _ in range(8):
        process = writer(file.path, "FIRST", 100_000)
        process.stdout.readline()
        written = len(FileStore(file).names())
        while len(FileStore(file).names()) <= written:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert FileStore(file).get("STABLE") == "some value"
        FileStore(file).set("AFTER", "some value")
        file.update(lambda contents: StoredSecrets(values={"STABLE": contents.values["STABLE"]}))
        assert sorted(path.name for path in file.path.parent.iterdir()) == [".secrets.lock", "secrets.json"]


def test_waiting_for_the_lock_times_out(file: SecretsFile, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reyn.private_files._LOCK_TIMEOUT_SECONDS", 0.05)

    def update_concurrently(contents: StoredSecrets) -> StoredSecrets:
        with pytest.raises(SecretStoreUnavailable, match="by another process"):
            FileStore(SecretsFile(file.path)).set("B", "another value")
        return contents.with_value("A", "some value")

    file.update(update_concurrently)
    assert FileStore(file).names() == {"A"}


def test_the_path_follows_xdg_config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert secrets_path({"XDG_CONFIG_HOME": "/etc/x"}, tmp_path) == Path("/etc/x/reyn/secrets.json")
    for environ in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert secrets_path(environ, tmp_path) == tmp_path / ".config" / "reyn" / "secrets.json"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert secrets_path({}) == tmp_path / ".config" / "reyn" / "secrets.json"
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.raises(SecretStoreUnavailable, match="no home"):
        secrets_path({})


def test_repr_contains_no_value(file: SecretsFile):
    from rich.pretty import pretty_repr

    FileStore(file).set("A", "some value")
    for thing in (file, FileStore(file), file.read(), [file.read()]):
        assert "some value" not in repr(thing) + str(thing) + pretty_repr(thing)
    assert "A" in repr(file.read())
