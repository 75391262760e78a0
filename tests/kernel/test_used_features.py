"""A visit executes the code of the features that its phase uses, and of no others.

Every function of Reyn that one activity calls is traced. A feature is a set of modules and functions; those that an
activity does not use must not be called. A failure prints what was. `python -m bench.units --calls visit` prints all.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench import units, workload
from bench.units import Activity, Work
from reyn import OSRuntime

FEATURES = {
    "conversations": (
        r"reyn\.chat",
        r"reyn\.context\.(compile|mutation|transcript|histories|records|messages)",
        r"reyn\.kernel\.core\.conversations",
        r"\w+\.TurnContext\.(_begin|_extend|add_turn|begin_ops|abort|messages|transcript)",
        r"\w+\.visit_input:(_next_message|_continues)",
    ),
    "compaction": (r"reyn\.kernel\.visit\.(compaction|transcript_budget)", r"reyn\.context\.selfref"),
    "hooks": (r"reyn\.kernel\.world\.hooks", r".*:TurnContext\.call_hooks"),
    "budgets": (
        r"reyn\.kernel\.world\.budgets:(?!budgeted_run)",
        r"reyn\.journal\.spending",
        r"reyn\.models\.prices",
        r"reyn\.config\.budgets",
    ),
    "bounds of a message": (r"reyn\.kernel\.world\.allowance",),
    "prompt limits": (
        r"reyn\.kernel\.visit\.prompt_budget",
        r"reyn\.context\.(budget|token_counting|tokens)\b",
        r".*:CompiledPhase\.(limits_prompt|prompt_limit|counter_factor|_model_limit)",
    ),
    "handoffs": (r"reyn\.kernel\.visit\.handoffs", r"reyn\.context\.(handoff|budget_log)"),
    "approvals": (r"reyn\.kernel\.visit\.(reviews|waits)", r"reyn\.permissions\.approvals"),
    "field orders": (r"reyn\.context\.field_order:(FieldOrder|field_order|_Reader)",),
    "two-step choices": (r"reyn\.models\.two_step",),
    "native tools": (r"reyn\.models\.text_tools", r"reyn\.contract\.forms:ToolsForm"),
    "ops": (
        r"reyn\.(ops|permissions|workspace|sandbox)\b",
        r"reyn\.kernel\.world\.(op_performer|op_outcomes|environments|unsafe_ops)",
        r"reyn\.kernel\.visit\.op_dispatch:(?!OpLog\.__init__)",
        r".*:(_act|schedule_tool_batch)$",
        r"reyn\.contract\.ops",
    ),
    "steps": (r"reyn\.kernel\.visit\.(steps|step_context|step_values|completed_steps)",),
    "expressions": (r"reyn\.expressions", r"reyn\.kernel\.visit\.(deciding|skill_state)"),
    "checks of decisions": (r"reyn\.kernel\.visit\.(decision_checks|work)",),
    "overviews": (r".*:(_?read_overviews)",),
    "sub-runs": (r"reyn\.kernel\.world\.(child\w*|children|shared_runs)", r"reyn\.kernel\.core\.child_effects"),
    "retries and fallback": (r".*:LlmCallRecorder\._try", r"reyn\.models\.endpoints"),
    "streams": (r"reyn\.kernel\.world\.redacting_stream",),
    "limits": (r"reyn\.kernel\.core\.limits:(?!limit_of|visits_left)", r".*:(_check_limits|_count_turns)"),
    "compiling": (
        r"reyn\.skills\.(?!values|catalogue|inputs)",
        r"reyn\.context\.prompt",
        r".*:(stages_of|static_text|stable_frame|CompiledPhase\.__init__|TurnSpec\.__init__|Contract\.__init__)",
    ),
    "looking": (r"reyn\.(lint|config|runs|documents\.(?!json_text))",),
}
"""The functions of each feature."""


@asynccontextmanager
async def plain_visit(root: Path, size: int) -> AsyncIterator[Work]:
    """Execute a run of so many visits of a skill that uses no feature: its fields are in alphabetical order."""
    workload.write_project(root)
    schema = root / "reyn" / "project" / "loop" / "artifacts" / "item.yaml"
    schema.write_text(json.dumps(workload.SCHEMA, sort_keys=True))
    async with OSRuntime.open(root, model=workload.Answers(size), **workload.SETTINGS) as rt:

        async def work() -> None:
            assert (await rt.run("loop", workload.FIRST)).ok

        yield work


RUN = {"ops", "conversations", "prompt limits", "handoffs", "sub-runs", "looking", "compiling"}
"""A run looks once whether it has a history, which limits its prompts have, and whether it hands something over;
at its end, the world forgets what its ops have read."""
CHAT = {"conversations", "compaction", "prompt limits", "bounds of a message", "limits", "streams"}
CHAT |= {"ops", "overviews", "approvals", "looking"}
"""A turn reads the message, asks whether the transcript is too long, lists what ops can act on, and waits again."""
USES: dict[str, tuple[Activity, set[str]]] = {
    "plain visit": (plain_visit, set()),
    "visit": (units.visit, {"field orders"}),
    "replayed visit": (units.replayed_visit, {"looking"}),
    "read op": (units.read_op, {"ops", "approvals"}),
    "write op": (units.write_op, {"ops", "approvals"}),
    "function call": (units.function_call, RUN),
    "chat turn": (units.chat_turn, CHAT),
}
"""Each activity, and the features that it uses."""


def found(feature: str, called: dict[str, float]) -> list[str]:
    """Return the functions of a feature that were called."""
    pattern = re.compile("|".join(f"(?:{one})" for one in FEATURES[feature]))
    return [f"{each:g} {name}" for name, each in called.items() if pattern.match(name)]


@pytest.mark.slow
@pytest.mark.parametrize("name", USES)
def test_only_the_features_that_are_used_are_executed(name: str):
    activity, used = USES[name]
    called = units.calls(activity)
    executed = {feature: found(feature, called) for feature in FEATURES}
    print("\n".join(f"{each:8.2f} {function}" for function, each in called.items()))
    assert not {feature: functions for feature, functions in executed.items() if functions and feature not in used}
    assert not {feature for feature in used if not executed[feature]}, "not used; the list is too long"
