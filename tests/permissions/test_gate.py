"""The gate decides by zone, and every verdict names its rule."""

import pytest

from reyn.permissions import Allowed, Denied, Gate
from reyn.workspace import locate


def verdicts(roots, text):
    gate, location = Gate(roots), locate(text, roots)
    return gate.read(location), gate.write(location)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("reyn/local/a.md", "default: write below reyn/"),
        ("workspace:a.md", "default: the run's own workspace"),
    ],
)
def test_a_run_may_write_below_reyn_and_in_its_workspace(roots, text, rule):
    read, write = verdicts(roots, text)
    assert isinstance(read, Allowed)
    assert write == Allowed(rule)


@pytest.mark.parametrize("text", ["README.md", "reyn.yaml", "reyn.local.yaml", "reyn", "Reyn/a.md", "src/reyn/a.md"])
def test_the_rest_of_the_project_is_read_only(roots, text):
    read, write = verdicts(roots, text)
    assert read == Allowed("default: read the project")
    assert isinstance(write, Denied)
    assert "`file.write`" in write.reason
    assert "grant" in write.reason
    assert f"`{text}`" in write.reason


@pytest.mark.parametrize("text", [".reyn", ".reyn/journal.db", "workspace:../run-2/theirs.md"])
def test_the_state_directory_is_denied(roots, text):
    read, write = verdicts(roots, text)
    assert read == write
    assert isinstance(read, Denied)
    assert read.rule == "default: no access to the state directory"


def test_truncated_content_is_read_only(roots):
    read, write = verdicts(roots, "workspace:.kept/call-1")
    assert read == Allowed("default: read truncated content")
    assert isinstance(write, Denied)


@pytest.mark.parametrize("text", ["/etc/passwd", "../beside/secret.md", "workspace:../../../README.md"])
def test_nothing_outside_the_project_is_allowed(roots, text):
    read, write = verdicts(roots, text)
    assert isinstance(read, Denied)
    assert isinstance(write, Denied)
    assert "`file.read`" in read.reason


def test_a_folder_cannot_be_written(roots):
    assert isinstance(verdicts(roots, "workspace:")[1], Denied)
