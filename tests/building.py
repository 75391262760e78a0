"""Plans of skills, and the answers with which a scripted model builds them."""

from __future__ import annotations

from typing import Any

from reyn.skills.drafts import SkillPlan, parse_plan

EMPTY_FIELD = {"type": "text", "description": "", "options": [], "json_schema": "", "required": True}


def field(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": name} | EMPTY_FIELD | keys


def values(**fields: Any) -> list[dict[str, Any]]:
    return [{"field": name, "value": value} for name, value in fields.items()]


def answer(next: str, ops: str = "", **fields: Any) -> dict[str, Any]:
    return {"next": next, "values": values(**fields), "ops": ops}


def case(name: str, *answers: dict[str, Any], text: str = "hello", replies: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"name": name, "input": values(text=text), "answers": list(answers), "replies": list(replies)}


def phase(name: str, inputs: list[str], *edges: tuple[str, str], **keys: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"name": name, "role": "", "inputs": inputs, "reads": [], "ops": []}
    base |= {"instructions": f"Do what {name} does.", "next": [{"to": to, "when": when} for to, when in edges]}
    return base | keys


def plan(name: str = "greeter", **keys: Any) -> dict[str, Any]:
    """Return the plan of a skill with one phase and one case, as the skill `skill_builder` produces it."""
    return {
        "name": name,
        "description": "Greet the user",
        "artifacts": [{"name": "greeting", "description": "A greeting.", "fields": [field("line")]}],
        "phases": [phase("greet", ["user_message"], ("end", ""))],
        "final_output": "greeting",
        "finish_criteria": [],
        "search_hints": [],
        "permissions": [],
        "cases": [case("plain", answer("end", line="Hello!"))],
    } | keys


def branching(name: str = "sorter") -> dict[str, Any]:
    """Return the plan of a skill with two phases, two artifacts and a branch."""
    return plan(
        name,
        artifacts=[
            {"name": "doubt", "description": "", "fields": [field("question")]},
            {
                "name": "label",
                "description": "A label: now or later",
                "fields": [field("kind", type="choice", options=["now", "later"]), field("count", type="integer")],
            },
        ],
        phases=[
            phase("sort", ["user_message"], ("end", "it is clear"), ("think", "it is not clear"), role="clerk"),
            phase("think", ["doubt"], ("end", ""), reads=["user_message"]),
        ],
        final_output="label",
        cases=[
            case("clear", answer("end", kind="now", count=1)),
            case("unclear", answer("think", question="why?"), answer("end", kind="later", count="2")),
        ],
    )


def parsed(**keys: Any) -> SkillPlan:
    return parse_plan(plan(**keys))


def planned(value: dict[str, Any]) -> dict[str, Any]:
    """The answer of the phase `design`."""
    return _decision("transition", "continue", "review", "skill_plan", value)


def sent_back(*changes: str) -> dict[str, Any]:
    """The answer of the phase `review` that asks for changes."""
    return _decision("transition", "continue", "revise", "plan_changes", {"changes": list(changes)})


def summed_up(text: str = "It greets.") -> dict[str, Any]:
    """The answer of the phase `review` that accepts the plan."""
    return _decision("finish", "finish", None, "build_summary", {"summary": text})


def _decision(kind: str, decision: str, next_phase: str | None, type: str, data: dict[str, Any]) -> dict[str, Any]:
    control = {"type": kind, "decision": decision, "next_phase": next_phase, "confidence": 0.9}
    return {"control": control | {"reason": {"summary": "decided"}}, "artifact": {"type": type, "data": data}}
