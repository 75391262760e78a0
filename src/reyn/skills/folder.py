"""Read the files of one skill: its own files first, then shared ones.

Each file is parsed once. A file that cannot be parsed becomes a finding. What the values mean is up to `loader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents import LINK_OUTSIDE, DocumentError, parse_front_matter, parse_yaml, read_text
from reyn.errors import Finding
from reyn.skills.codes import NAME_COLLISION
from reyn.skills.dialect import is_older_form, modernize
from reyn.skills.names import find_path, nfc

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.documents import Document


class SkillFolder:
    """The parsed files of a skill.

    Files are addressed by their path in the folder, `phases/review.md`, in Unicode normalization form C.

    Attributes:
        path: The skill's folder.
        findings: Files that could not be parsed, and file names that collide.
        is_older: Whether the skill is written in the older form.
    """

    def __init__(self, folder: Path, shared: tuple[Path, ...]) -> None:
        self.path = folder
        self._folders = (folder, *shared)
        self._documents: dict[str, Document | None] = {}
        self._yaml_1_1 = False
        self.findings: list[Finding] = []
        self.is_older = self._detect_older_form()

    def _detect_older_form(self) -> bool:
        front_matter = [self.front_matter("skill.md"), *map(self.front_matter, self.own_files("phases", ".md"))]
        artifacts = [self.artifact(file) for file in self.own_files("artifacts", ".yaml")]
        is_older = is_older_form([file for file in front_matter if file], [file for file in artifacts if file])
        if is_older:
            # The older form reads scalars as YAML 1.1, so that every file is parsed again.
            self._documents.clear()
            self.findings.clear()
            self._yaml_1_1 = True
        return is_older

    def own_files(self, folder: str, suffix: str) -> list[str]:
        """Return the skill's own files in a subfolder, such as `phases/review.md`."""
        names = {nfc(path.name) for path in (self.path / folder).glob(f"*{suffix}") if path.is_file()}
        return [f"{folder}/{name}" for name in sorted(names)]

    def check_names(self) -> None:
        """Report files whose names some file systems do not distinguish."""
        for folder, suffix in (("phases", ".md"), ("artifacts", ".yaml")):
            seen: dict[str, str] = {}
            for path in sorted((self.path / folder).glob(f"*{suffix}")):
                if not path.is_file():
                    continue
                file = f"{folder}/{nfc(path.name)}"
                other = seen.setdefault(file.casefold(), path.name)
                document = self.front_matter(file) if suffix == ".md" else self.artifact(file)
                if other != path.name and document is not None:
                    difference = "Unicode normalization" if nfc(other) == nfc(path.name) else "case"
                    message = f"the name differs from `{folder}/{nfc(other)}` only in {difference}"
                    self.findings.append(document.finding(NAME_COLLISION, message, fix="rename one of the files"))

    def exists(self, file: str) -> bool:
        """Return whether the skill or a shared folder has a file."""
        return self._locate(file) is not None

    def path_of(self, file: str) -> Path:
        """Return the path on disk of one of the skill's own files."""
        return find_path(self.path, file) or self.path / file

    def names(self, folder: str, suffix: str) -> list[str]:
        """Return the names of all files in a subfolder, including shared ones, without their suffix."""
        return [nfc(path.stem) for parent in self._folders for path in (parent / folder).glob(f"*{suffix}")]

    def front_matter(self, file: str) -> Document | None:
        """Return a Markdown file with front matter, in the documented form; `None` if it cannot be parsed."""
        return self._read(file, has_body=True)

    def artifact(self, file: str) -> Document | None:
        """Return an artifact file; `None` if it cannot be parsed."""
        return self._read(file, has_body=False)

    def _locate(self, file: str) -> tuple[Path, Path] | None:
        """Return the folder that has a file, and the file's path on disk."""
        for folder in self._folders:
            path = find_path(folder, file)
            if path is not None and path.is_file():
                return folder, path
        return None

    def _read(self, file: str, *, has_body: bool) -> Document | None:
        if file not in self._documents:
            try:
                self._documents[file] = self._parse(file, has_body=has_body)
            except DocumentError as error:
                self.findings.append(error.finding)
                self._documents[file] = None
        return self._documents[file]

    def _parse(self, file: str, *, has_body: bool) -> Document:
        folder, path = self._locate(file) or (self.path, self.path / file)
        label = file if folder is self.path else f"{folder.name}/{file}"
        if folder is not self.path and not _is_inside_project(folder):
            message = f"`{folder.name}` is a link that points outside the project; `{label}` is not read"
            raise DocumentError(Finding(label, 1, 1, LINK_OUTSIDE, message, "replace the link by a copy"))
        text = read_text(path, label, inside=folder)
        parse = parse_front_matter if has_body else parse_yaml
        yaml_1_1 = self._yaml_1_1
        if folder is not self.path:
            # A shared file has a form of its own, whichever form the skills that use it are written in.
            document = parse(text, label)
            yaml_1_1 = is_older_form([document] if has_body else [], [] if has_body else [document])
        document = parse(text, label, yaml_1_1=yaml_1_1)
        if not has_body:
            return document
        return _with_normalized_names(modernize(document) if yaml_1_1 else document)


def _is_inside_project(shared: Path) -> bool:
    """Return whether a shared folder, `reyn/shared`, is in the project it is named in."""
    return shared.resolve().is_relative_to(shared.parents[1].resolve())


def _with_normalized_names(document: Document) -> Document:
    """Return front matter with the names of phases, artifacts and the skill in normalization form C."""
    if not isinstance(document.value, dict):
        return document
    value = {
        key: nfc(item) if key in _NAME_KEYS and isinstance(item, str) else item for key, item in document.value.items()
    }
    graph, marks = value.get("graph"), document.marks
    if isinstance(graph, dict):
        value["graph"] = {nfc(node): _normalized(targets) for node, targets in graph.items()}
        marks = {
            ("graph", *(nfc(part) if isinstance(part, str) else part for part in path[1:]))
            if len(path) > 1 and path[0] == "graph"
            else path: mark
            for path, mark in marks.items()
        }
    if isinstance(value.get("reads"), list):
        value["reads"] = _normalized(value["reads"])
    postprocessor = value.get("postprocessor")
    if isinstance(postprocessor, dict) and isinstance(postprocessor.get("output_schema"), str):
        value["postprocessor"] = postprocessor | {"output_schema": nfc(postprocessor["output_schema"])}
    return msgspec.structs.replace(document, value=value, marks=marks)


_NAME_KEYS = {"name", "entry", "final_output", "input"}


def _normalized(targets: Any) -> Any:
    if isinstance(targets, list):
        return [nfc(target) if isinstance(target, str) else target for target in targets]
    if isinstance(targets, dict):
        return {nfc(target) if isinstance(target, str) else target: text for target, text in targets.items()}
    return targets
