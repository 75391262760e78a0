"""A run that was denied something ends once its advice is followed: the texts, and the printed next command.

The advice is followed as a user follows it: lines for skill.md and reyn.yaml are added there, a rule that the message
names is removed, and the command after `next:` is executed as it is printed.
"""

from __future__ import annotations

import re
import shlex
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.support import IN, Output, write_answers
from tests.permissions.test_advice import GRANT, REQUEST
from tests.properties import ALL_CASES
from tests.support import finish, write_skill

PYTHON = "{python: {module: ./step.py, function: size, mode: unsafe, into: data.size, output_schema: {}}}"
SHELL = "{run_op: {op: {kind: shell, cmd: 'true'}, into: data.done}}"
WRITE = "{run_op: {op: {kind: file, op: write, path: out.txt, content: x}, into: data.file}}"
NEEDS = {
    "unsafe python": [PYTHON],
    "shell": [SHELL],
    "two switches": [SHELL, PYTHON],
    "the switches the other way round": [PYTHON, SHELL],
    "a request and a grant": [WRITE],
    "a switch and a grant": [PYTHON, WRITE],
    "a grant and a switch": [WRITE, PYTHON],
    "a rule": [],
}
UNSAFE = {"module": "./step.py", "function": "size", "mode": "unsafe", "reason": "counts"}
BELOW = ("node", "step", "branch", "two runs below")
PLACES = ("phase", "rule", "end", *BELOW)
NOTE = {"type": "object", "properties": {"text": {"type": "string"}, "amount": {"type": "number"}}}


class Skills:
    """The skills of a project, and what they request."""

    def __init__(self, root: Path, place: str, steps: list[str]) -> None:
        self.root, self.place, self.steps = root, place, steps
        self.is_below = place in BELOW
        self.requests: dict[str, dict[str, Any]] = {}
        if any("python" in step for step in steps):
            self.requests[self.denied_in] = {"python": [UNSAFE]}
        if any("shell" in step for step in steps):  # without it, lint stops the run
            self.requests[self.denied_in] = {**self.requests.get(self.denied_in, {}), "shell": True}
        self.write()

    def write(self) -> None:
        """Write all skills with their requests."""
        self.write_callers()
        self._write_worker(self.denied_in, "phase" if self.is_below else self.place)

    def write_callers(self) -> None:
        """Write the skills above the one that is denied something."""
        if self.place == "two runs below":
            self._write_caller("s", "node", "mid")
            self._write_caller("mid", "step", "inner")
        elif self.is_below:
            self._write_caller("s", self.place, "inner")

    def _write_worker(self, name: str, place: str) -> None:
        keys = f"permissions: {self._permissions(name)}\n"
        pre = f"preprocessor: [{', '.join(self.steps)}]\n"
        graph: Any = {"a": ["end"]}
        if place == "end":
            keys += f"postprocessor: {{output_schema: note, steps: [{', '.join(self.steps)}]}}\n"
        folder = write_skill(
            self.root,
            name,
            {"r": [{"else": "a"}], "a": ["end"]} if place == "rule" else graph,
            phase_keys={"a": pre} if place == "phase" else {},
            artifacts={"note": NOTE},
            skill_keys=keys,
        )
        (folder / "step.py").write_text("def size(artifact):\n    return 1\n")
        if place == "rule":
            (folder / "phases" / "r.md").write_text(f"---\ntype: phase\nname: r\ninput: note\n{pre}---\n")

    def _write_caller(self, name: str, kind: str, called: str) -> None:
        keys = f"permissions: {self._permissions(name)}\n"
        graph: Any = {"a": ["end"]}
        phases = {}
        if kind == "node":
            graph = {f"@{called}": ["a"], "a": ["end"]}
        elif kind == "step":
            phases["a"] = f"preprocessor: [{{run_skill: {{skill: {called}, input: data, into: data.r}}}}]\n"
        else:
            graph = {"f": ["a"], "a": ["end"]}
            keys += f"nodes: {{f: {{all: {{one: '@{called}'}}, as: answers}}}}\n"
        folder = write_skill(
            self.root,
            name,
            graph,
            inputs={"a": "answers"} if kind == "branch" else {},
            artifacts={"note": NOTE},
            phase_keys=phases,
            skill_keys=keys,
        )
        if kind == "branch":
            (folder / "phases" / "f.md").write_text("---\ntype: phase\nname: f\ninput: note\n---\n")

    def _permissions(self, name: str) -> str:
        return yaml.safe_dump(self.requests.get(name, {}), default_flow_style=True, width=10_000).strip()

    @property
    def denied_in(self) -> str:
        return "inner" if self.is_below else "s"

    @property
    def names(self) -> tuple[str, ...]:
        return ("s", "mid", "inner")[:: 1 if self.place == "two runs below" else 2]

    def request(self, skill: str, line: dict[str, Any]) -> None:
        held = self.requests.setdefault(skill, {})
        for key, value in line.items():
            held[key] = (
                [*(one for one in held.get(key, []) if one not in value), *value] if isinstance(value, list) else value
            )


def follow(output: Output, skills: Skills, config: Path) -> None:
    """Do what the texts of a failed run say."""
    text = " ".join(output.out.split())
    assert "sub-run" not in text.partition("fix:")[2] or skills.is_below, "there is no sub-run"
    for names, line in REQUEST.findall(text):
        for name in re.findall("the skill(?: `(\\w+)`)?", names):
            skills.request(name or skills.denied_in, yaml.safe_load(line))
    if "each skill must list `./step.py:size` with `mode: unsafe` under `permissions.python`" in text:
        for name in skills.names:
            skills.request(name, {"python": [UNSAFE]})
    skills.write()
    settings = yaml.safe_load(config.read_text())
    for line, key in GRANT.findall(text):
        rules = settings.setdefault("permissions", {})
        more = {key: yaml.safe_load(line)} if key else yaml.safe_load(line)
        for name, value in more.items():
            rules[name] = [*rules.get(name, []), *value]
    if "the operator denies `run_skill`" in text:
        del settings["permissions"]["run_skill"]
    config.write_text(yaml.safe_dump(settings))


CASES = [case for case in product(PLACES, NEEDS) if case[1] != "a rule" or case[0] in BELOW]


@pytest.mark.sampled
@pytest.mark.parametrize(("place", "need"), CASES if ALL_CASES else CASES[::5])  # every place and every need
def test_a_run_ends_once_the_advice_about_what_was_denied_is_followed(here: Path, reyn, place: str, need: str):
    skills, config = Skills(here, place, NEEDS[need]), here / "reyn.yaml"
    if need == "a rule":
        config.write_text(config.read_text() + "permissions: {run_skill: [{deny: '*'}]}\n")
    write_answers(here, *[finish("x")] * 6)
    output = reyn("run", "s", IN, "--run-id", "r")
    for _ in range(12):
        if output.code == 0:
            return
        lines = re.findall(r"^next: reyn (.*)$", output.out, re.MULTILINE)
        assert lines, output.out + output.err
        follow(output, skills, config)
        if "trust the project" in output.out:
            assert reyn("trust", "--yes").code == 0
        output = reyn(*shlex.split(lines[0]))
    pytest.fail(f"still denied: {output.out}{output.err}")


# -- failures whose cause is in the skill ---------------------------------------------------------------------

FAULTS = {
    "RYN203": ("step", "1 // 0", "1"),
    "RYN210": ("rule", "has(data.amount) && 100.0 / data.amount > 1.0", "has(data.amount)"),
    "RYN211": ("sum", "1e308", "1.5"),
}


def write_faulty(root: Path, name: str, code: str, *, is_fixed: bool) -> None:
    """Write a skill that fails with a code unless it is fixed."""
    kind, faulty, fixed = FAULTS[code]
    text = fixed if is_fixed else faulty
    step = "preprocessor: [{python: {module: ./step.py, function: size, into: data.amount, output_schema: {}}}]\n"
    keys = "permissions: {python: [{module: ./step.py, function: size}]}\n"
    graph: dict[str, Any] = {"r": [{"else": "a"}], "a": ["end"]}
    match kind:
        case "rule":
            graph["r"] = [{"when": text, "to": "a"}, {"else": "a"}]
        case "sum":
            keys += "state: {spent: {sum: note.data.amount}}\n"
            made = {"type": "note", "data": {"amount": float(text)}}
            graph = {"r": [{"else": "q", "artifact": made}], "q": [{"else": "a", "artifact": made}], "a": ["end"]}
    folder = write_skill(root, name, graph, artifacts={"note": NOTE}, skill_keys=keys)
    (folder / "step.py").write_text(f"def size(artifact):\n    return {text if kind == 'step' else 1}\n")
    for node in ("r", "q"):
        own = step if node == "r" and kind == "step" else ""
        (folder / "phases" / f"{node}.md").write_text(f"---\ntype: phase\nname: {node}\ninput: note\n{own}---\n")


@pytest.mark.parametrize("code", ["RYN203", "RYN210", "RYN211"])
@pytest.mark.parametrize("place", ["", "node", "step", "branch"])
def test_a_run_ends_once_its_skill_is_fixed_and_the_printed_command_executed(here: Path, reyn, place: str, code: str):
    name = "inner" if place else "s"
    if place:
        Skills(here, place, [])
    write_faulty(here, name, code, is_fixed=False)
    write_answers(here, *[finish("x")] * 3)
    failed = reyn("run", "s", '{"text": "in", "amount": 0}', "--run-id", "r")
    assert code in failed.out + failed.err
    [line] = re.findall(r"^next: reyn (.*)$", failed.out, re.MULTILINE)
    assert f"`reyn {line}`" in failed.out
    write_faulty(here, name, code, is_fixed=True)
    output = reyn(*shlex.split(line))
    assert output.code == 0, output.out + output.err
