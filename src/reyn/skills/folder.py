"""The files of one skill, each read once: its own first, then what is shared. What cannot be read is a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.documents import DocumentError, parse_front_matter, parse_yaml, read_text
from reyn.skills.codes import CASE_ONLY
from reyn.skills.dialect import is_older, modernise

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.documents import Document
    from reyn.errors import Finding


class SkillFolder:
    """`findings` gathers what is wrong with the files themselves."""

    def __init__(self, folder: Path, shared: tuple[Path, ...]) -> None:
        self.path = folder
        self._folders = (folder, *shared)
        self._documents: dict[str, Document | None] = {}
        self._yaml_1_1 = False
        self.findings: list[Finding] = []
        self.is_older = self._find_out_age()

    def _find_out_age(self) -> bool:
        """Reads all of the skill's own files; if they turn out to be older, they mean something else."""
        fronts = [self.front("skill.md"), *map(self.front, self.own("phases", ".md"))]
        artifacts = [self.artifact(file) for file in self.own("artifacts", ".yaml")]
        found = is_older([file for file in fronts if file], [file for file in artifacts if file])
        if found:
            self._documents.clear()
            self.findings.clear()
            self._yaml_1_1 = True
        return found

    def own(self, folder: str, ending: str) -> list[str]:
        """The skill's own files of a kind, as `phases/a.md`; two that differ only in case are a finding."""
        names = sorted(path.name for path in (self.path / folder).glob(f"*{ending}") if path.is_file())
        return [f"{folder}/{name}" for name in names]

    def check_names(self) -> None:
        """Two files whose names differ only in case are one file on some machines."""
        for folder, ending in (("phases", ".md"), ("artifacts", ".yaml")):
            seen: dict[str, str] = {}
            for file in self.own(folder, ending):
                other = seen.setdefault(file.lower(), file)
                document = self.front(file) if ending == ".md" else self.artifact(file)
                if other != file and document is not None:
                    self.findings.append(document.finding(CASE_ONLY, f"differs from `{other}` only in case"))

    def exists(self, relative: str) -> bool:
        return any((folder / relative).is_file() for folder in self._folders)

    def known(self, folder: str, ending: str) -> list[str]:
        """The names of all files of a kind, shared ones too."""
        return [path.stem for place in self._folders for path in (place / folder).glob(f"*{ending}")]

    def front(self, relative: str) -> Document | None:
        """A file with front matter, as it would be written today."""
        return self._read(relative, is_front=True)

    def artifact(self, relative: str) -> Document | None:
        return self._read(relative, is_front=False)

    def _read(self, relative: str, *, is_front: bool) -> Document | None:
        if relative not in self._documents:
            try:
                self._documents[relative] = self._parse(relative, is_front=is_front)
            except DocumentError as error:
                self.findings.append(error.finding)
                self._documents[relative] = None
        return self._documents[relative]

    def _parse(self, relative: str, *, is_front: bool) -> Document:
        folder = next((place for place in self._folders if (place / relative).is_file()), self.path)
        shown = relative if folder is self.path else f"{folder.name}/{relative}"
        text = read_text(folder / relative, shown)
        parse = parse_front_matter if is_front else parse_yaml
        if folder is self.path:
            document = parse(text, shown, yaml_1_1=self._yaml_1_1)
            return modernise(document) if self._yaml_1_1 and is_front else document
        # A shared file means the same whoever shares it: its age is its own.
        document = parse(text, shown)
        if not is_older([document] if is_front else [], [] if is_front else [document]):
            return document
        document = parse(text, shown, yaml_1_1=True)
        return modernise(document) if is_front else document
