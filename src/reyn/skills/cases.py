"""The cases of a skill: what a test run of it starts with, what its model answers, and what it must return.

`cases/<name>/` has `input.json`, `answers.jsonl` and `expected.json`; optionally `replies.jsonl`, the replies to
questions and approvals in order, and `files/`, files of the project that the skill finds. Cases are not part of the
skill.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from reyn.documents import DocumentError, TrustClasses, read_raw, read_text, trust_classes
from reyn.errors import CaseInvalid
from reyn.folders import OpenFolder, inside, names_in
from reyn.skills.resolve import open_folder

CASES = "cases"
MAX_CASES = 100
MAX_ANSWERS = 500
_MAX_FILES = 100
_PARTS = ("input.json", "answers.jsonl", "expected.json", "replies.jsonl")

ScriptedAnswer = dict[str, Any] | str


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a case must return. A path or an artifact that is left out is not compared.

    Attributes:
        status: The status of the run.
        path: The phases that it visits.
        artifact: Its final output.
        denied: The ops that the project's permission rules deny, in order, as `KIND` or `KIND OP`.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="status path artifact denied")

    status: str = "finished"
    path: list[str] | None = None
    artifact: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    denied: list[str] = []


class Case(msgspec.Struct, frozen=True):
    """One case.

    Attributes:
        name: The name of its folder.
        input: The input of the run.
        answers: The answers of the model, in order.
        expected: What the run must return.
        replies: Replies to questions, in order.
        files: Files of the project, by path.
    """

    name: str
    input: Any
    answers: tuple[ScriptedAnswer, ...]
    expected: Expected = Expected()
    replies: tuple[Any, ...] = ()
    files: dict[str, bytes] = {}


def read_cases(folder: Path) -> list[Case | CaseInvalid]:
    """Return the cases of the skill in a folder, by name; an error for each that cannot be read."""
    try:
        opened = open_folder(folder)
    except OSError:
        return []
    with opened:
        return [_read(opened, name) for name in _names(opened)]


def case_names(folder: Path) -> list[str]:
    """Return the names of the cases of the skill in a folder."""
    try:
        opened = open_folder(folder)
    except OSError:
        return []
    with opened:
        return _names(opened)


def case_files(folder: Path) -> list[Path]:
    """Return the files that the cases of the skill in a folder are read from."""
    try:
        opened = open_folder(folder)
    except OSError:
        return []
    with opened:
        return [path for name in _names(opened) for path in _Files(opened, name).paths()]


def _names(folder: OpenFolder) -> list[str]:
    """Return the names of the cases. A deleted case may have left an empty folder."""
    return [name for name in names_in(folder, CASES) if names_in(folder, f"{CASES}/{name}")][:MAX_CASES]


def _read(folder: OpenFolder, name: str) -> Case | CaseInvalid:
    try:
        case = _Files(folder, name)
        return Case(
            name,
            case.value("input.json", Any),
            tuple(case.lines("answers.jsonl", ScriptedAnswer)),
            case.value("expected.json", Expected) if case.has("expected.json") else Expected(),
            tuple(case.lines("replies.jsonl", Any)) if case.has("replies.jsonl") else (),
            case.project_files(),
        )
    except DocumentError as error:
        return CaseInvalid(f"{CASES}/{name}: {error.finding.message}")
    except CaseInvalid as error:
        return error


class _Files:
    """The files of a case. Links that lead out of the skill are not followed."""

    def __init__(self, folder: OpenFolder, name: str) -> None:
        self._skill = folder
        self._name = name
        self._folder = Path(folder.path) / CASES / name

    def paths(self) -> list[Path]:
        """Return the files of the case."""
        return [*(self._folder / name for name in _PARTS if self.has(name)), *self._project_paths()]

    def has(self, file: str) -> bool:
        return (self._folder / file).exists()

    def value(self, file: str, kind: Any) -> Any:
        return self._decoded(self._text(file), kind, file)

    def lines(self, file: str, kind: Any) -> Iterator[Any]:
        lines = [line for line in enumerate(self._text(file).split("\n"), start=1) if line[1].strip()]
        if len(lines) > MAX_ANSWERS:
            raise CaseInvalid(f"{CASES}/{self._name}/{file}: more than {MAX_ANSWERS} lines")
        return (self._decoded(text, kind, f"{file}:{number}") for number, text in lines)

    def project_files(self) -> dict[str, bytes]:
        """Return the files below `files/`."""
        root, found = self._folder / "files", self._project_paths()
        if len(found) > _MAX_FILES:
            raise CaseInvalid(f"{CASES}/{self._name}/files: more than {_MAX_FILES} files")
        return {path.relative_to(root).as_posix(): read_raw(path, path.name, inside=self._skill) for path in found}

    def _project_paths(self) -> list[Path]:
        root = self._folder / "files"
        is_inside = inside(self._skill.path, root) is not None
        return sorted(path for path in root.rglob("*") if path.is_file()) if is_inside and root.is_dir() else []

    def _text(self, file: str) -> str:
        if not self.has(file):
            raise CaseInvalid(f"{CASES}/{self._name}: `{file}` is missing")
        return read_text(self._folder / file, file, inside=self._skill)

    def _decoded(self, text: str, kind: Any, place: str) -> Any:
        try:
            return msgspec.json.decode(text, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CaseInvalid(f"{CASES}/{self._name}/{place}: {error}") from error


# -- reports --------------------------------------------------------------------------------------------------


class CaseReport(msgspec.Struct, frozen=True):
    """The result of one case; `problems` say how it differs from what the case expects."""

    name: str
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.problems


class TrialReport(msgspec.Struct, frozen=True):
    """The results of all cases of a skill."""

    cases: tuple[CaseReport, ...] = ()

    @property
    def failures(self) -> list[str]:
        """What is wrong, one line for each problem."""
        return [f"case `{case.name}`: {problem}" for case in self.cases for problem in case.problems]

    @property
    def passed(self) -> bool:
        return all(case.passed for case in self.cases)

    @property
    def summary(self) -> str:
        """Return the result in one line."""
        if not self.cases:
            return "no cases"
        count = sum(case.passed for case in self.cases)
        noun = "case" if len(self.cases) == 1 else "cases"
        return f"{count} of {len(self.cases)} {noun} passed"
