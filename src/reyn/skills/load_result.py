"""The result of reading a skill's folder: what could be read of it, and every finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from reyn.documents import Document
    from reyn.errors import Finding
    from reyn.skills.folder import SkillFolder
    from reyn.skills.values import Skill


class LoadResult(NamedTuple):
    """The result of reading a skill's folder.

    Attributes:
        partial: The parts of the skill that could be read, for rules that run despite errors.
        findings: Every error and warning, sorted by position.
        folder: The skill's parsed files.
        sub_skills: The results of the skills that it runs, by name.
    """

    partial: Skill | None
    findings: list[Finding]
    folder: SkillFolder
    sub_skills: dict[str, LoadResult]

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def skill(self) -> Skill | None:
        """The skill; `None` if there are errors."""
        return None if self.errors else self.partial

    def document(self, phase: str | None = None) -> Document:
        """Return the front matter of `skill.md`, or of a phase that `partial` has."""
        document = self.folder.read("skill.md" if phase is None else f"phases/{phase}.md")
        assert document is not None
        return document

    @property
    def phase_documents(self) -> list[Document]:
        """The phases that could be read: the skill's own, and the shared ones that its graph reaches."""
        reached = self.partial.phases if self.partial is not None else ()
        files = dict.fromkeys([*self.folder.own_files("phases", ".md"), *(f"phases/{name}.md" for name in reached)])
        return [document for file in files if (document := self.folder.read(file)) is not None]
