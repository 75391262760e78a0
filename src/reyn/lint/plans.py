"""Check the structure of a plan for `lint_plan` steps: phases, transitions, artifacts and the entry."""

from __future__ import annotations

from typing import Any

from reyn.skills.graph import reachable


def plan_issues(plan: Any) -> list[str]:
    """Return every issue as a sentence; a value that is not a plan is an issue too."""
    if not isinstance(plan, dict):
        return ["the plan is not an object"]
    phases = [phase for phase in _list_at(plan, "phases") if isinstance(phase, dict)]
    names = [str(phase.get("name")) for phase in phases]
    edges = _edges(plan)
    final = plan.get("final_output")
    known = {str(item.get("name")) for item in _list_at(plan, "artifacts") if isinstance(item, dict)}
    known |= {"user_message", str(final.get("name")) if isinstance(final, dict) else ""}
    issues = [f"phase `{name}` is declared {names.count(name)} times" for name in dict.fromkeys(names)
              if names.count(name) > 1]  # fmt: skip
    issues += [
        f"phase `{phase.get('name')}` takes `{phase['input_artifact']}`, which is not declared"
        for phase in phases
        if isinstance(phase.get("input_artifact"), str) and phase["input_artifact"] not in known
    ]
    entry = plan.get("entry_phase")
    if entry not in names:
        issues.append(f"the entry phase `{entry}` is not declared")
    for source, targets in edges.items():
        issues += [f"a transition begins at `{source}`, which is not declared"] if source not in names else []
        issues += [
            f"a transition of `{source}` leads to `{target}`, which is not declared"
            for target in targets
            if target not in (*names, "end")
        ]
    issues += [f"`{name}` can be reached from itself" for name in names if _is_in_cycle(edges, name)]
    return issues


def _list_at(plan: dict[str, Any], key: str) -> list[Any]:
    value = plan.get(key)
    return value if isinstance(value, list) else []


def _edges(plan: dict[str, Any]) -> dict[str, list[str]]:
    edges: dict[str, list[str]] = {}
    for entry in _list_at(plan, "transitions"):
        if isinstance(entry, dict):
            targets = entry.get("to")
            names = targets if isinstance(targets, list) else [targets]
            edges.setdefault(str(entry.get("from")), []).extend(str(name) for name in names)
    return edges


def _is_in_cycle(edges: dict[str, list[str]], name: str) -> bool:
    return any(name in reachable(edges, target) for target in edges.get(name, ()) if target != "end")
