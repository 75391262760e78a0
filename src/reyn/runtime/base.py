"""The parts of a runtime that its groups of methods use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from reyn.runs.run_files import RunFiles

if TYPE_CHECKING:
    from reyn.runtime.executor import RunExecutor
    from reyn.runtime.project import Project


class RuntimeBase:
    """A project and the executor of its runs."""

    def __init__(self, project: Project, executor: RunExecutor) -> None:
        self._project = project
        self._executor = executor

    @cached_property
    def _files(self) -> RunFiles:
        """The files that runs changed, behind the permission gate."""
        project = self._project
        return RunFiles(
            project.root,
            project.state_folder,
            project.journal,
            project.clock,
            project.config.sizes.file_bytes,
            project.policy,
            self._executor.op_performer.environments.gate_of,
        )
