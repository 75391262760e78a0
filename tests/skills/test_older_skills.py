"""Skills in the older form with python steps, `lint`, `skill_resolve`, `web_fetch` and sub-skills load and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reyn.lint import lint_skill
from reyn.lint.fix import fix_skill
from reyn.runtime import SyncRuntime
from reyn.sandbox.backends import BACKENDS
from reyn.skills import Library
from reyn.testing import ScriptedModel
from tests.models.fake_server import FakeServer, whole
from tests.support import VOCABULARY, act, finish

FILES = {
    "page_digest/skill.md": """\
---
type: skill
name: page_digest
description: Digest a web page.
entry: fetch
final_output: digest
finish_criteria: the digest names the subject, it is short
graph: {fetch: [write], write: []}
permissions:
  python:
    - {module: ./stats.py, function: word_stats, mode: safe, timeout: 5}
    - {module: ./stats.py, function: fingerprint, mode: safe}
routing: {intents: [digest]}
postprocessor:
  output_schema: {type: object, required: [title, fingerprint]}
  steps:
    - {type: python, module: ./stats.py, function: fingerprint, into: data.fingerprint, output_schema: {type: string}}
---
Digest a page.
""",
    "page_digest/phases/fetch.md": """\
---
type: phase
name: fetch
input: page_request
can_finish: no
allowed_ops: [web_fetch]
max_act_turns: 0
preprocessor:
  - type: run_op
    op: {kind: web_fetch, url: PLACEHOLDER, prompt: the subject, timeout: 20, max_length: 2000}
    args_from: {url: data.url}
    into: data.page
    on_error: empty
  - {type: python, module: ./stats.py, function: word_stats, into: data.stats, output_schema: {type: object}}
---
Read the page.
""",
    "page_digest/phases/write.md": """\
---
type: phase
name: write
input: facts
can_finish: yes
allowed_ops: []
---
Write the digest.
""",
    "page_digest/artifacts/page_request.yaml": """\
name: page_request
schema: {type: object, required: [url], properties: {url: {type: string}}}
""",
    "page_digest/artifacts/facts.yaml": """\
name: facts
schema: {type: object, required: [text], properties: {text: {type: string}}}
""",
    "page_digest/artifacts/digest.yaml": """\
name: digest
schema: {type: object, required: [title], properties: {title: {type: string}}}
""",
    "page_digest/stats.py": """\
import hashlib
import json
import re


def word_stats(artifact):
    page = artifact["data"].get("page") or {}
    words = re.findall("[a-z]+", page.get("content", "").lower())
    print("counted", len(words))
    return {"words": len(words), "status": page.get("status", "none")}


def fingerprint(artifact):
    return hashlib.sha256(json.dumps(artifact["data"], sort_keys=True).encode()).hexdigest()[:12]
""",
    "skill_checker/skill.md": """\
---
type: skill
name: skill_checker
entry: check
final_output: check_report
graph: {check: end}
permissions:
  python: [{module: tally, function: tally, mode: safe}]
  index_drop: true
  recall: allow
---
Check skills.
""",
    "skill_checker/phases/check.md": """\
---
type: phase
name: check
input: check_request
allowed_ops: [lint, skill_resolve]
preprocessor:
  - type: run_op
    op: {kind: skill_resolve, name: PLACEHOLDER}
    args_from: {name: data.main}
    into: data.found
  - type: iterate
    over: data.names
    apply: {type: run_op, op: {kind: lint, skill_path: PLACEHOLDER}, args_from: {skill_path: _iter.item}}
    into: data.findings
    on_error: skip
  - {type: validate, schema: {type: object, required: [findings]}}
  - {type: python, module: tally, function: tally, into: data.tally, output_schema: {type: object}}
---
Report on the skills.
""",
    "skill_checker/artifacts/check_request.yaml": """\
name: check_request
schema:
  type: object
  required: [main, names]
  properties: {main: {type: string}, names: {type: array, items: {type: string}}}
""",
    "skill_checker/artifacts/check_report.yaml": """\
name: check_report
schema: {type: object, required: [verdict], properties: {verdict: {type: string}}}
""",
    "skill_checker/tally.py": """\
import statistics
from collections import Counter
from dataclasses import dataclass


@dataclass
class Line:
    text: str


def lines(findings):
    for one in findings:
        yield Line(one["skill_path"])


def tally(artifact):
    findings = artifact["data"]["findings"]
    passed = Counter(bool(one["passed"]) for one in findings)
    mean = statistics.mean([one["error_count"] for one in findings] or [0])
    return {"passed": passed[True], "names": [line.text for line in lines(findings)], "mean": mean}
""",
    "run_and_eval/skill.md": """\
---
type: skill
name: run_and_eval
entry: evaluate
final_output: evaluation
graph: {evaluate: []}
permissions:
  python: [{module: ./grade.py, function: grade, mode: safe, timeout: 10}]
postprocessor:
  output: evaluation
  steps:
    - {type: python, module: ./grade.py, function: grade, into: data.grade, output_schema: {type: string}}
---
Run a skill and judge it.
""",
    "run_and_eval/phases/evaluate.md": """\
---
type: phase
name: evaluate
input: eval_request
allowed_ops: [run_skill, judge_output]
preprocessor:
  - type: run_op
    op: {kind: run_skill, skill: PLACEHOLDER, input: {}, model: standard, workspace: isolated, output_language: en}
    args_from: {skill: data.skill, input: data.case}
    into: data.run
  - type: run_op
    op: {kind: judge_output, rubric: It names a verdict., target: artifact.data.run.final_output, threshold: 0.5}
    into: data.judgement
---
Evaluate the run.
""",
    "run_and_eval/artifacts/eval_request.yaml": """\
name: eval_request
schema:
  type: object
  required: [skill, case]
  properties: {skill: {type: string}, case: {type: object}}
""",
    "run_and_eval/artifacts/evaluation.yaml": """\
name: evaluation
schema: {type: object, required: [score], properties: {score: {type: number}, grade: {type: string}}}
""",
    "run_and_eval/grade.py": """\
def grade(artifact):
    return "pass" if artifact["data"]["score"] >= 0.5 else "fail"
""",
}
PAGE = b"<html><body><article><p>Tea is a drink that is made of leaves and hot water.</p></article></body></html>"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "reyn/local" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def decided(type_: str, next_phase: str | None = None, **data: Any) -> dict[str, Any]:
    answer = finish() | {"artifact": {"type": type_, "data": data}}
    if next_phase:
        answer["control"] |= {"type": "transition", "decision": "continue", "next_phase": next_phase}
    return answer


def run(root: Path, skill: str, value: dict[str, Any], *answers: dict[str, Any], **settings: Any) -> tuple[Any, Any]:
    """Return the result, and what the steps bound by its path."""
    with SyncRuntime.open(root, model=ScriptedModel(answers), trust=True, **settings) as runtime:
        result = runtime.run(skill, value, run_id="k")
        bound = {
            event.data["into"]: json.loads(runtime.services.journal.blob(event.data["result"]))
            for event in runtime.runs.events("k")
            if event.kind == "step_completed" and event.data.get("result")
        }
        assert runtime.runs.replay("k").status == result.status
    return result, bound


@pytest.mark.parametrize("skill", ["page_digest", "skill_checker", "run_and_eval"])
def test_they_have_no_errors(root: Path, skill: str):
    findings = lint_skill(root / "reyn/local" / skill, Library(root), VOCABULARY)
    assert [str(finding) for finding in findings if finding.severity == "error"] == []


@pytest.mark.sockets
def test_a_page_is_fetched_without_a_request_once_a_person_allows_the_host(root: Path):
    with FakeServer(whole("text/html", PAGE)) as server:
        host = server.url.removeprefix("http://").partition("/")[0]
        answers = (decided("facts", "write", text="tea"), decided("digest", title="Tea"))
        rules = {"web": [{"allow": f"private:{host}"}, {"allow": host}]}
        result, bound = run(root, "page_digest", {"url": f"http://{host}/"}, *answers, permissions=rules)
    assert bound["data.stats"] == {"words": 12, "status": "ok"}
    assert result.artifact["data"]["title"] == "Tea"
    assert len(result.artifact["data"]["fingerprint"]) == 12


def test_without_a_rule_each_host_asks(root: Path):
    result, _ = run(root, "page_digest", {"url": "https://example.org/"})
    assert (result.status, "ask for web example.org" in result.question.message) == ("waiting", True)


@pytest.mark.skipif(all(backend.problem for backend in BACKENDS), reason="no process sandbox")
def test_skills_are_resolved_linted_and_counted(root: Path):
    value = {"main": "page_digest", "names": ["page_digest", "run_and_eval", "missing"]}
    look = act({"kind": "lint", "skill_path": "skill_checker"}, {"kind": "skill_resolve", "name": "nothing"})
    result, bound = run(root, "skill_checker", value, look, decided("check_report", verdict="fine"))
    assert result.ok
    assert (bound["data.found"]["resolved"], bound["data.found"]["source"]) == (True, "local")
    assert bound["data.tally"] == {"passed": 2, "names": ["page_digest", "run_and_eval"], "mean": 0}
    assert [warning for warning in result.warnings if "index_drop" in warning or "recall" in warning] == []
    assert any("missing" in warning for warning in result.warnings)


@pytest.mark.skipif(all(backend.problem for backend in BACKENDS), reason="no process sandbox")
def test_a_sub_skill_is_run_and_judged(root: Path):
    case = {"type": "check_request", "data": {"main": "x", "names": []}}
    judged = decided("judgement", reason="it does", score=0.9)
    answers = (decided("check_report", verdict="fine"), judged, decided("evaluation", score=0.9))
    result, bound = run(root, "run_and_eval", {"skill": "skill_checker", "case": case}, *answers)
    assert result.artifact == {"type": "evaluation", "data": {"score": 0.9, "grade": "pass"}}
    assert bound["data.run"]["final_output"] == {"verdict": "fine"}
    assert [one["phase"] for one in bound["data.run"]["phase_artifacts"]] == ["check"]
    assert (bound["data.judgement"]["score"], bound["data.judgement"]["passed"]) == (0.9, True)


@pytest.mark.parametrize("skill", ["page_digest", "skill_checker", "run_and_eval"])
def test_a_fix_writes_the_documented_form(root: Path, skill: str):
    folder = root / "reyn/local" / skill
    assert fix_skill(folder, Library(root), VOCABULARY)
    findings = lint_skill(folder, Library(root), VOCABULARY)
    assert [str(finding) for finding in findings if finding.code == "RYN135" or finding.severity == "error"] == []
    if skill == "page_digest":
        assert "  web: true\n" in (folder / "skill.md").read_text()
    if skill == "run_and_eval":
        assert "args_from: {output: data.run.final_output}\n" in (folder / "phases/evaluate.md").read_text()


def test_a_fix_removes_arguments_without_effect(root: Path):
    phase = root / "reyn/local/run_and_eval/phases/evaluate.md"
    phase.write_text(phase.read_text().replace("target: artifact.data.run.final_output, ", "output: text, "))
    folder = phase.parents[1]
    assert fix_skill(folder, Library(root), VOCABULARY)
    assert "{kind: run_skill, skill: PLACEHOLDER, input: {}, workspace: isolated}" in phase.read_text()
