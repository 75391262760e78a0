"""Read the files of one skill: its own files first, then shared ones.

Each file is parsed once. A file that cannot be parsed becomes a finding. What the values mean is up to `loader`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents import Document, DocumentError, Severity, parse_front_matter, parse_yaml
from reyn.errors import Finding, codes
from reyn.jsonschema.patterns import VerbosePattern, units
from reyn.skills import older_form
from reyn.skills.names import find_path, is_valid_name, nfc
from reyn.skills.older_form import Converted, OlderSkill
from reyn.skills.resolve import STDLIB, ReadFiles

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.vocabulary import Vocabulary


MAX_SKILL_CHARACTERS = 2_000_000
"""The characters of all files of a skill together. A file has at most a million bytes."""

MAX_PATTERNS = 200
"""The patterns in all files of a skill: to compile one can take a twentieth of a second, however short it is."""
_LARGE_PATTERN = 100
"""The states of a pattern that count as one more pattern: to compile them can take three milliseconds."""


class SkillFolder:
    """The parsed files of a skill, or of a shared folder, which has no `skill.md`.

    Files are addressed by their path in the folder, `phases/review.md`, in Unicode normalization form C.

    Attributes:
        path: The skill's folder.
        read_files: The files that were read.
        findings: Everything that is wrong with the skill's files.
        notes: What the conversion of the older form found in the skill's own files; for `lint`.
        is_older: Whether the skill is written in the older form.
    """

    def __init__(self, folder: Path, shared: tuple[Path, ...], vocabulary: Vocabulary, read_files: ReadFiles) -> None:
        self.path = folder
        self.read_files = read_files
        self._folders = (folder, *shared)
        self._listed = (folder, *(place for place in shared if place == STDLIB or is_inside_project(place)))
        for place in self._listed:
            if place != STDLIB:  # it does not change
                read_files.add(place, "phases", "artifacts")
        self._texts: dict[str, str] = {}
        self._length = self._patterns = 0
        self._written: dict[str, Document | None] = {}
        self._documents: dict[str, Document | None] = {}
        self._is_shared = folder in shared
        if self._is_shared:
            self._written["skill.md"] = self._documents["skill.md"] = None
        self.conversions: dict[str, Converted] = {}
        self.findings: list[Finding] = []
        self.notes: list[Finding] = []
        files = ["skill.md", *self.own_files("phases", ".md"), *self.own_files("artifacts", ".yaml")]
        documents = [self._as_written(file) for file in files]
        self.is_older = any(older_form.is_older(document.value) for document in documents if document)
        self._skill = OlderSkill(vocabulary)
        if self.is_older:
            self._describe(vocabulary)

    def _describe(self, vocabulary: Vocabulary) -> None:
        """Collect what the conversion has to know about the skill, and add the type that it may name."""
        skill = self._as_written("skill.md")
        value = skill.value if skill and isinstance(skill.value, dict) else {}
        names = [value.get("entry")]
        if isinstance(graph := value.get("graph"), dict):
            names += graph
            for successors in graph.values():
                names += successors if isinstance(successors, list | dict) else [successors]
        files = dict.fromkeys(f"phases/{name}.md" for name in names if isinstance(name, str) and is_valid_name(name))
        phases = [self._as_written(file) for file in files if self.exists(file)]
        self._skill = OlderSkill.of(vocabulary, value, [phase.value for phase in phases if phase])
        file = f"artifacts/{older_form.DEFAULT_INPUT}.yaml"
        if not self.exists(file):
            self._documents[file] = Document(file, {"type": "object"}, {})

    def own_files(self, folder: str, suffix: str) -> list[str]:
        """Return the skill's own files in a subfolder, such as `phases/review.md`."""
        names = {nfc(path.name) for path in self._files(self.path, folder, suffix)}
        return [f"{folder}/{name}" for name in sorted(names)]

    def check_names(self) -> None:
        """Report files whose names some file systems do not distinguish."""
        for folder, suffix in (("phases", ".md"), ("artifacts", ".yaml")):
            seen: dict[str, str] = {}
            for path in self._files(self.path, folder, suffix):
                file = f"{folder}/{nfc(path.name)}"
                other = seen.setdefault(file.casefold(), path.name)
                document = self._as_written(file)
                if other != path.name and document is not None:
                    difference = "Unicode normalization" if nfc(other) == nfc(path.name) else "case"
                    message = f"the name differs from `{folder}/{nfc(other)}` only in {difference}"
                    self.report(document, codes.NAME_COLLISION, message, fix="rename one of the files")

    def report(
        self,
        document: Document,
        code: str,
        message: str,
        *path: str | int,
        fix: str = "",
        severity: Severity = "error",
    ) -> None:
        """Add a finding at the position of a value in a document."""
        self.findings.append(document.finding(code, message, *path, fix=fix, severity=severity))

    def exists(self, file: str) -> bool:
        """Return whether the skill or a shared folder has a file."""
        return file in self._documents or self._locate(file) is not None

    def path_of(self, file: str) -> Path:
        """Return the path on disk of one of the skill's own files."""
        return find_path(self.path, file) or self.path / file

    def names(self, folder: str, suffix: str) -> list[str]:
        """Return the names of all files in a subfolder, including shared ones, without their suffix."""
        return [nfc(path.stem) for parent in self._listed for path in self._files(parent, folder, suffix)]

    def read(self, file: str) -> Document | None:
        """Return a file in the documented form; `None` if it cannot be parsed."""
        if file not in self._documents:
            self._documents[file] = self._caught(self._convert, file)
        return self._documents[file]

    def _locate(self, file: str) -> tuple[Path, Path] | None:
        """Return the folder that has a file, and the file's path on disk."""
        for folder in self._folders:
            path = find_path(folder, file)
            if path is not None and path.is_file():
                return folder, path
        return None

    def _files(self, parent: Path, folder: str, suffix: str) -> list[Path]:
        """Return the files of a subfolder by suffix. A subfolder that is a link out of its parent has none."""
        names = self.read_files.names(parent, folder)
        paths = (parent / folder / name for name in names if name.endswith(suffix))
        return [path for path in paths if path.is_file()]

    def _as_written(self, file: str) -> Document | None:
        if file not in self._written:
            self._written[file] = self._caught(self._parse, file)
        return self._written[file]

    def _caught(self, read: Callable[[str], Document | None], file: str) -> Document | None:
        try:
            return read(file)
        except DocumentError as error:
            self.findings.append(error.finding)
            return None

    def _parse(self, file: str) -> Document:
        folder, path = self._locate(file) or (self.path, self.path / file)
        label = file if folder is self.path else f"{folder.name}/{file}"
        if folder is not self.path and not is_inside_project(folder):
            message = f"`{folder.name}` is a link that points outside the project; `{label}` is not read"
            raise DocumentError(Finding(label, 1, 1, codes.LINK_OUTSIDE, message, "replace the link by a copy"))
        text = self.read_files.read(path, label, folder)
        self._length += len(text)
        if self._length > MAX_SKILL_CHARACTERS:
            message = (
                f"the files of the skill have more than {MAX_SKILL_CHARACTERS:,} characters; `{label}` is not read"
            )
            raise DocumentError(Finding(label, 1, 1, codes.UNREADABLE, message, "make the skill smaller"))
        self._texts[file] = text
        document = parse_front_matter(text, label) if file.endswith(".md") else parse_yaml(text, label)
        self._patterns += _patterns_in(document.value)
        if self._patterns > MAX_PATTERNS:
            message = f"the files of the skill have more than {MAX_PATTERNS} patterns; `{label}` is not read"
            raise DocumentError(Finding(label, 1, 1, codes.UNREADABLE, message, "use fewer patterns"))
        return document

    def _convert(self, file: str) -> Document | None:
        document = self._as_written(file)
        if document is None:
            return None
        is_own, has_body = document.file == file, file.endswith(".md")
        # A shared file has a form of its own, whichever form the skills that use it are written in.
        if self.is_older if is_own and not self._is_shared else older_form.is_older(document.value):
            converted = older_form.convert(document, self._texts[file], self._skill)
            document = converted.document
            self.findings += converted.findings
            if is_own:
                self.conversions[file] = converted
                self.notes += converted.notes
        return _with_normalized_names(document) if has_body else document


def _patterns_in(value: Any) -> int:
    """Return how many patterns the schemas and expressions of a document have, at most; a large one is several."""
    count, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            named = one.get("patternProperties")
            patterns = [one["pattern"]] if "pattern" in one else []
            patterns += named if isinstance(named, dict) else ()
            count += sum(1 + _large_parts(pattern) for pattern in patterns)
            left += one.values()
        elif isinstance(one, list):
            left += one
        elif isinstance(one, str) and (found := one.count("matches")):
            is_slow = "\\p" in one or "\\P" in one  # other characters may belong to a text around the expression
            count += found + (_large_parts(one) if is_slow else 0)
    return count


def _large_parts(pattern: Any) -> int:
    """Return how many patterns a large one counts as, besides itself; of one that is not valid, 0."""
    try:
        return units(pattern) // _LARGE_PATTERN if isinstance(pattern, str) else 0
    except VerbosePattern:
        return 0


def is_inside_project(shared: Path) -> bool:
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
