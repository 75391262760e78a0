"""The standard library: every skill passes its cases and is written for small models."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import reyn
from reyn import LATER, RunResult, SyncRuntime
from reyn.journal import Event
from reyn.skills import USER_MESSAGE, Skill
from reyn.testing import MemoryJournal, ScriptedModel
from tests.support import VOCABULARY, load_skill

STDLIB = Path(reyn.__file__).parent / "stdlib" / "skills"
FOLDERS = sorted(path.parent for path in STDLIB.glob("*/skill.md"))
CASES = [case for folder in FOLDERS for case in sorted((folder / "cases").iterdir()) if case.is_dir()]
EXPECTED = (
    "chat",
    "direct_llm",
    "draft_review",
    "extract_fields",
    "headline",
    "judge_output",
    "skill_builder",
    "skill_importer",
    "summarize",
    "triage",
)

each_skill = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parents[1].name}-{case.name}")


class Replies:
    """Replies to questions from a file, in order."""

    def __init__(self, file: Path) -> None:
        self._lines = iter(file.read_text(encoding="utf-8").splitlines() if file.exists() else ())

    async def ask(self, run_id: str, question: Any) -> Any:
        line = next(self._lines, None)
        return LATER if line is None else json.loads(line)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def cases_of(folder: Path) -> list[Path]:
    return [case for case in CASES if case.parents[1] == folder]


def run(root: Path, case: Path, *, strict: bool = False) -> tuple[RunResult, list[Event], str]:
    """Run a case; return its result, its events and the status of its replay."""
    model = ScriptedModel.from_file(case / "answers.jsonl", case.name)
    folder = root / case.name
    if (case / "files").is_dir():
        shutil.copytree(case / "files", folder)
    folder.mkdir(exist_ok=True)
    people = Replies(case / "replies.jsonl")
    with SyncRuntime.open(folder, model=model, journal=MemoryJournal(), people=people, strict=strict) as rt:
        result = rt.run(str(case.parents[1].resolve()), read(case / "input.json"))
        return result, list(rt.runs.events(result.run_id)), rt.runs.replay(result.run_id).status


def visited(case: Path) -> set[str]:
    return set(read(case / "expected.json")["path"])


def hops(case: Path) -> set[tuple[str, str]]:
    expected = read(case / "expected.json")
    path = expected["path"]
    end = {(path[-1], "end")} if expected["status"] == "finished" else set()
    return {*pairwise(path), *end}


@cache
def loaded(folder: Path) -> Skill:
    return load_skill(folder)


def schemas_of(skill: Skill) -> dict[str, Any]:
    """Return the schemas of the skill, without built-in ones."""
    taken = [artifact for phase in skill.phases.values() for artifact in phase.inputs]
    return {artifact.name: artifact.schema for artifact in [*taken, skill.final_output] if artifact != USER_MESSAGE}


def parts(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every subschema with its path."""
    if not isinstance(schema, dict):
        return
    yield place, schema
    for name, child in schema.get("properties", {}).items():
        yield from parts(child, f"{place}.{name}")
    yield from parts(schema.get("items"), f"{place}[]")
    for index, child in enumerate(schema.get("anyOf", [])):
        yield from parts(child, f"{place}|{index}")


def all_parts(skill: Skill) -> list[tuple[str, dict[str, Any]]]:
    return [part for name, schema in schemas_of(skill).items() for part in parts(schema, name)]


def mentions(text: str, words: set[str]) -> set[str]:
    return {word for word in words if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)}


# -- what they do -----------------------------------------------------------------------------------------


def test_every_packaged_skill_is_found():
    assert tuple(folder.name for folder in FOLDERS) == EXPECTED


@pytest.mark.slow
@each_case
def test_a_case_gives_the_expected_result_and_replays(tmp_path: Path, case: Path):
    result, events, replayed = run(tmp_path, case)
    expected = read(case / "expected.json")
    assert {"status": result.status, "path": list(result.path), "artifact": result.artifact} == expected
    assert replayed == expected["status"]
    assert result.warnings == ()
    answers = (case / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert [event.kind for event in events].count("llm_responded") == len(answers)  # none is left over


@pytest.mark.slow
@each_case
def test_a_case_gives_the_same_result_in_strict_mode(tmp_path: Path, case: Path):
    result, _, _ = run(tmp_path, case, strict=True)
    expected = read(case / "expected.json")
    assert {"status": result.status, "path": list(result.path), "artifact": result.artifact} == expected


@each_skill
def test_the_cases_cover_every_edge(folder: Path):
    skill = loaded(folder)
    taken = set().union(*(hops(case) for case in cases_of(folder)))
    edges = {(name, target) for name, targets in skill.graph.items() for target in targets}
    assert edges <= taken
    assert taken == edges or skill.on_phase_failure == "rollback"  # a rollback goes back where no edge leads


@each_skill
def test_the_cases_cover_every_phase(folder: Path):
    written = {path.stem for path in (folder / "phases").glob("*.md")}
    assert written == set(loaded(folder).phases)
    assert set().union(*(visited(case) for case in cases_of(folder))) == written


@pytest.mark.slow
@each_skill
def test_some_case_recovers_from_a_rejected_answer(tmp_path: Path, folder: Path):
    assert len(cases_of(folder)) >= 2
    verdicts = []
    for case in cases_of(folder):
        _, events, _ = run(tmp_path, case)
        answered = [event.kind for event in events if event.kind in ("validation_error", "control_decided")]
        verdicts.append(answered[0])
    assert "validation_error" in verdicts


@pytest.mark.parametrize("name", ["draft_review", "summarize", "triage"])
def test_some_case_aborts(name: str):
    assert "aborted" in {read(case / "expected.json")["status"] for case in cases_of(STDLIB / name)}


# -- rules that the shapes hold, not the prose ------------------------------------------------------------


def rejections(root: Path, case: str) -> list[tuple[str, str]]:
    _, events, _ = run(root, STDLIB / case)
    wrong = [event.data for event in events if event.kind == "validation_error"]
    return [(error["class"], error["path"]) for error in wrong]


def test_a_review_that_goes_back_needs_an_open_criterion(tmp_path: Path):
    assert rejections(tmp_path, "draft_review/cases/rejected_first") == [
        ("candidate", "$.control.next_phase"),
        ("schema", "$.artifact.data.findings"),
    ]


def test_an_approved_text_cannot_have_an_open_criterion():
    [closed] = [part for place, part in all_parts(loaded(STDLIB / "draft_review")) if place == "approved_text"]
    assert set(closed["properties"]) == {"text", "checks"}
    assert closed["additionalProperties"] is False


def test_a_value_needs_a_quote(tmp_path: Path):
    assert rejections(tmp_path, "extract_fields/cases/rejected_first") == [("schema", "$.artifact.data.fields[1]")]


def test_a_route_accepts_only_its_own_artifact(tmp_path: Path):
    assert rejections(tmp_path, "triage/cases/incident_rejected_first") == [("artifact_type", "$.artifact.type")]
    skill = loaded(STDLIB / "triage")
    inputs = [skill.phases[name].inputs for name in skill.graph["classify"]]
    names = [artifact.name for [artifact] in inputs]
    assert len(set(names)) == 3
    assert set(skill.edge_texts["classify"]) == set(skill.graph["classify"])
    assert skill.final_output.schema["properties"]["kind"]["enum"] == names


# -- how they are written ---------------------------------------------------------------------------------


@each_skill
def test_a_skill_has_a_description_and_search_hints(folder: Path):
    skill = loaded(folder)
    assert skill.name == folder.name
    assert 0 < len(skill.description) <= 80
    assert skill.final_output_description
    assert skill.search_hints


@each_skill
def test_every_artifact_is_used(folder: Path):
    written = {path.stem for path in (folder / "artifacts").glob("*.yaml")}
    assert written == set(schemas_of(loaded(folder)))


@each_skill
def test_strings_and_lists_are_bounded(folder: Path):
    bound = {"string": "maxLength", "array": "maxItems"}
    for place, part in all_parts(loaded(folder)):
        kind = part.get("type")
        assert isinstance(kind, str) or "anyOf" in part, f"{place} has no single type"
        assert kind not in bound or "enum" in part or bound[kind] in part, f"{place} has no {bound[kind]}"


@each_skill
def test_objects_are_closed_and_their_fields_required_and_described(folder: Path):
    for place, part in all_parts(loaded(folder)):
        if part.get("type") == "object":
            assert part["additionalProperties"] is False, place
            assert sorted(part["required"]) == sorted(part["properties"]), place
        for name, field in part.get("properties", {}).items():
            assert "description" in field or field["type"] == "null", f"{place}.{name}"


@each_skill
def test_a_phase_is_short_and_allows_no_ops_unless_it_is_a_conversation(folder: Path):
    for phase in loaded(folder).phases.values():
        assert phase.allowed_ops == () or phase.conversation, phase.name
        assert phase.role, phase.name
        assert len(phase.instructions) <= 900, phase.name


@each_skill
def test_instructions_name_no_phases_artifacts_or_ops(folder: Path):
    skill = loaded(folder)
    for phase in skill.phases.values():
        others = set(skill.phases) - {phase.name}
        types = {name for name in schemas_of(skill) if "_" in name}  # a type of one word is also plain English
        assert not mentions(phase.instructions, others | types | VOCABULARY.op_kinds), phase.name


@each_skill
def test_instructions_have_no_field_lists_or_literals(folder: Path):
    """Schemas describe the fields, and small models copy literals."""
    skill = loaded(folder)
    fields = {name for _, part in all_parts(skill) for name in part.get("properties", {})}
    field = "|".join(sorted(map(re.escape, fields)))
    listed = re.compile(rf"\b(?:{field})\b\s*(?:,|/|and|or)\s*\b(?:{field})\b|^\W*(?:{field})\s*:", re.I | re.M)
    for phase in skill.phases.values():
        assert not listed.search(phase.instructions), phase.name
        assert not re.search(r"""[`"{}<>_\d]""", phase.instructions), phase.name


def test_the_reference_explains_the_permissions_of_every_skill():
    page = Path(__file__).parents[2] / "docs" / "reference" / "stdlib.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in EXPECTED if f"$ reyn permissions explain {name}\n" not in text] == []
