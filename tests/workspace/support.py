"""A project with a state directory and a workspace, and secrets outside the project and in the state directory."""

from __future__ import annotations

from pathlib import Path

from reyn.workspace import Roots

CANARY = "tell nobody"


def make_roots(folder: Path) -> Roots:
    project = folder / "project"
    state = project / ".reyn"
    workspace = state / "workspace" / "run-1"
    workspace.mkdir(parents=True)
    (project / "reyn").mkdir()
    (project / "output").mkdir()
    (project / "README.md").write_text("# A project\n")
    (state / "journal.db").write_text(CANARY)
    (state / "workspace" / "run-2").mkdir()
    (state / "workspace" / "run-2" / "theirs.md").write_text(CANARY)
    (folder / "beside").mkdir()
    (folder / "beside" / "secret.md").write_text(CANARY)
    return Roots(project, state, workspace)


def open_descriptors() -> int:
    """The number of open descriptors, to find those that are not closed."""
    return sum(1 for _ in Path("/dev/fd").iterdir())
