"""What the ops look like that the kernel itself performs: a question to a person, a run of another skill."""

from __future__ import annotations

from reyn.vocabulary.forms import OpForm
from reyn.vocabulary.schemas import arguments, flag, many, result, text

ASK_USER_FORM = OpForm(
    op=None,
    summary="Put a question to a person and wait for the answer.",
    arguments=arguments(
        "ask_user",
        None,
        {"question": text(4_000, least=1)},
        {"suggestions": many(text(400), 20), "required": flag(default=True)},
    ),
    effect="idempotent",
    result=result("ask_user", None, {"question": {"type": "string"}, "answer": {}}),
    example={"kind": "ask_user", "question": "Which tone should the report have?", "suggestions": ["formal", "plain"]},
)

RUN_SKILL_FORM = OpForm(
    op=None,
    summary="Run another skill and take its final artifact.",
    arguments=arguments(
        "run_skill",
        None,
        {"skill": text(200, least=1), "input": {"type": ["object", "string"], "maxLength": 1_000_000}},
    ),
    effect="idempotent",
    result=result(
        "run_skill",
        None,
        {
            "skill": {"type": "string"},
            "success": {"type": "boolean"},
            "artifact_type": {"type": "string"},
            "final_output": {},
        },
    ),
    example={"kind": "run_skill", "skill": "summarise", "input": {"text": "what to sum up"}},
)
