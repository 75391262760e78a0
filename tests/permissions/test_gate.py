"""Who asks the gate gets a verdict, and the verdict names its rule."""

import pytest

from reyn.permissions import Allowed, Denied, Gate
from reyn.workspace import locate


def verdicts(roots, text):
    gate, place = Gate(roots), locate(text, roots)
    return gate.read(place), gate.write(place)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("reyn/local/a.md", "default: write below reyn/"),
        ("workspace:a.md", "default: the run's own workspace"),
    ],
)
def test_below_reyn_and_in_its_workspace_a_run_may_write(roots, text, rule):
    read, write = verdicts(roots, text)
    assert isinstance(read, Allowed)
    assert write == Allowed(rule)


@pytest.mark.parametrize("text", ["README.md", "reyn.yaml", "reyn.local.yaml", "reyn", "Reyn/a.md", "src/reyn/a.md"])
def test_the_rest_of_the_project_may_only_be_read(roots, text):
    read, write = verdicts(roots, text)
    assert read == Allowed("default: read the project")
    assert isinstance(write, Denied)
    assert "`file.write`" in write.reason
    assert "grant" in write.reason
    assert f"`{text}`" in write.reason


@pytest.mark.parametrize("text", [".reyn", ".reyn/journal.db", "workspace:../run-2/theirs.md"])
def test_the_state_directory_is_out_of_reach(roots, text):
    read, write = verdicts(roots, text)
    assert read == write
    assert isinstance(read, Denied)
    assert read.rule == "the state directory is out of reach"


def test_what_is_kept_may_only_be_read(roots):
    read, write = verdicts(roots, "workspace:.kept/call-1")
    assert read == Allowed("kept by this run")
    assert isinstance(write, Denied)


@pytest.mark.parametrize("text", ["/etc/passwd", "../beside/secret.md", "workspace:../../../README.md"])
def test_beyond_the_project_nothing_is_allowed(roots, text):
    read, write = verdicts(roots, text)
    assert isinstance(read, Denied)
    assert isinstance(write, Denied)
    assert "`file.read`" in read.reason


def test_a_folder_itself_is_not_written_to(roots):
    assert isinstance(verdicts(roots, "workspace:")[1], Denied)
