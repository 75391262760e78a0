"""The files that `reyn new` writes: small skills with scripted answers that run them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Template(NamedTuple):
    """The files of a skill, and scripted answers for one complete run."""

    files: dict[str, str]
    answers: list[dict[str, Any]]

    @property
    def script(self) -> str:
        return _lines(self.answers)


def _lines(answers: list[dict[str, Any]]) -> str:
    import json

    return "".join(json.dumps(answer) + "\n" for answer in answers)


def linear(name: str) -> Template:
    graph = "graph:\n  note_facts: [write_answer]\n  write_answer: [end]\n"
    return Template(
        {
            "skill.md": _skill(name, "Answer a message from the facts in it.", "note_facts", graph),
            "phases/note_facts.md": _phase(
                "note_facts", "user_message", "List what the message states, one fact each."
            ),
            "phases/write_answer.md": _phase(
                "write_answer", "facts", "Answer in two sentences from these facts alone."
            ),
            "artifacts/facts.yaml": _FACTS,
            "artifacts/answer.yaml": _ANSWER,
        },
        [
            _answer("write_answer", "facts", {"facts": ["The message asks for a greeting."]}),
            _answer(None, "answer", {"text": "Hello, and welcome."}),
        ],
    )


def loop(name: str) -> Template:
    graph = (
        "graph:\n  write: [review]\n  review:\n    revise: a criterion is not met\n    end: all criteria are met\n"
        "  revise: [review]\n"
    )
    criteria = "finish_criteria:\n  - the text does what the message asks\n  - no sentence can be left out\n"
    return Template(
        {
            "skill.md": _skill(name, "Write and review until it is good.", "write", graph + criteria),
            "phases/write.md": _phase("write", "user_message", "Write what the message asks for."),
            "phases/review.md": _phase(
                "review",
                "draft",
                "Judge the draft against the message and the criteria. Remark on each that is not met.",
                reads="[user_message]",
            ),
            "phases/revise.md": _phase(
                "revise", "remarks", "Improve the draft as the remarks say.", reads="[user_message, draft]"
            ),
            "artifacts/draft.yaml": _text("A text to be reviewed."),
            "artifacts/remarks.yaml": _REMARKS,
            "artifacts/answer.yaml": _ANSWER,
        },
        [
            _answer("review", "draft", {"text": "Hello hello."}),
            _answer("revise", "remarks", {"remarks": ["One word is there twice."]}),
            _answer("review", "draft", {"text": "Hello."}),
            _answer(None, "answer", {"text": "Hello."}),
        ],
    )


def branch(name: str) -> Template:
    graph = (
        "graph:\n  sort:\n    reply: the message asks for something that can be done\n"
        "    decline: it asks for nothing, or for something impossible\n"
        "  reply: [end]\n  decline: [end]\n"
    )
    return Template(
        {
            "skill.md": _skill(name, "Sort a message and answer it accordingly.", "sort", graph),
            "phases/sort.md": _phase(
                "sort", "user_message", "Decide whether the message asks for something we can do."
            ),
            "phases/reply.md": _phase("reply", "task", "Do what is asked, briefly."),
            "phases/decline.md": _phase("decline", "refusal", "Decline politely and say why in one sentence."),
            "artifacts/task.yaml": _text("What to do."),
            "artifacts/refusal.yaml": _text("What cannot be done, and why."),
            "artifacts/answer.yaml": _ANSWER,
        },
        [
            _answer("reply", "task", {"text": "a greeting"}),
            _answer(None, "answer", {"text": "Hello."}),
        ],
    )


TEMPLATES = {"linear": linear, "loop": loop, "branch": branch}


def _skill(name: str, description: str, entry: str, more: str) -> str:
    return (
        f"---\ntype: skill\nname: {name}\ndescription: {description}\nentry: {entry}\nfinal_output: answer\n{more}---\n"
        "Notes for maintainers; the model does not see them.\n"
    )


def _phase(name: str, input: str, instructions: str, *, reads: str = "") -> str:
    more = f"reads: {reads}\n" if reads else ""
    return f"---\ntype: phase\nname: {name}\ninput: {input}\nallowed_ops: []\n{more}---\n{instructions}\n"


def _text(description: str) -> str:
    return (
        f"description: {description}\ntype: object\nproperties:\n  text: {{type: string, maxLength: 2000}}\n"
        "required: [text]\nadditionalProperties: false\n"
    )


_ANSWER = _text("What the user gets.")
_FACTS = """\
description: What a message states.
type: object
properties:
  facts:
    type: array
    maxItems: 20
    items: {type: string, maxLength: 300}
required: [facts]
additionalProperties: false
"""
_REMARKS = """\
description: What is wrong with a draft.
type: object
properties:
  remarks:
    type: array
    minItems: 1
    maxItems: 10
    items: {type: string, maxLength: 300}
required: [remarks]
additionalProperties: false
"""


def _answer(next_phase: str | None, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    control = {
        "type": "transition" if next_phase else "finish",
        "decision": "continue" if next_phase else "finish",
        "next_phase": next_phase,
        "confidence": 0.9,
        "reason": {"summary": "as scripted"},
    }
    return {"control": control, "artifact": {"type": kind, "data": data}}


_FUNCTION = '''\
"""A function that a model executes, and a tool that the model may call."""

from dataclasses import dataclass

from reyn import llm_function, tool


@dataclass
class Title:
    text: str
    words: int


@tool(effect="pure", permission=None)
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@llm_function(toolkit=[count_words])
def {name}(text: str) -> Title:
    """Give the text a title of at most five words. Count the words of the text with `count_words`."""
    raise NotImplementedError  # a model executes this function
'''


def function_template(name: str) -> tuple[str, str]:
    """Return a module with a function, and scripted answers for one call of it."""
    answers = [
        {"control_ir": [{"kind": "count_words", "text": "The bridge is open again."}]},
        _answer(None, "result", {"text": "Bridge open again", "words": 5}),
    ]
    return _FUNCTION.format(name=name), _lines(answers)


EXAMPLES = {
    "RYN101": ("reyn skills", 'reyn run hello \'{"name": "Ada"}\''),
    "RYN102": ("reyn lint hello",),
    "RYN103": ("reyn lint hello",),
    "RYN104": ("reyn lint hello", "reyn lint hello --fix"),
    "RYN105": ("reyn agent list", "reyn agent new designer", "reyn chat designer"),
    "RYN106": ("reyn memory list", "reyn memory show designer/tea"),
    "RYN135": ("reyn lint hello --fix",),
    "RYN160": ("reyn new function urgency",),
    "RYN161": ('reyn run mails:urgency \'{"mail": "The server is down."}\'',),
    "RYN164": ("reyn show order-17", "reyn resume order-17"),
    "RYN201": (
        "reyn skills hello",
        'reyn run hello \'{"name": "Ada"}\'',
        "reyn run hello @guest.json",
        "reyn run menu_line 'noodle soup'",
    ),
    "RYN202": ("reyn show order-17", "reyn frame order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN203": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN204": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN205": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN206": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN301": ("reyn resume order-17 --retry",),
    "RYN302": ("reyn permissions list", "reyn permissions revoke 3"),
    "RYN311": ("reyn secret allow OPENAI_API_KEY https://api.openai.com",),
    "RYN330": ("reyn doctor",),
    "RYN331": ("reyn doctor", "reyn resume order-17 --retry"),
    "RYN401": ("reyn runs", "reyn show order-17"),
    "RYN402": ("reyn events order-17", "reyn cancel order-17"),
    "RYN403": ("reyn show order-17",),
    "RYN404": ("reyn verify order-17",),
    "RYN405": ("reyn verify order-17", "reyn replay order-17"),
    "RYN406": ("reyn verify order-17",),
    "RYN408": ("reyn doctor",),
    "RYN409": ("reyn show order-17", 'reyn run hello \'{"name": "Ada"}\' --run-id order-18'),
    "RYN410": (
        "reyn answer order-17 yes",
        "reyn resume order-17 --retry",
        "reyn resume order-17 --raise run_tokens=200000",
        "reyn fork order-17",
    ),
    "RYN411": ("reyn show order-17", "reyn fork order-17"),
    "RYN413": ('reyn run hello \'{"name": "Ada"}\' --run-id order-17',),
    "RYN414": ("reyn show order-17", "reyn answer order-17 yes"),
    "RYN415": ('reyn answer order-17 ask-3f9a1c20b7d45e8f0a61b92c7d3e4f58 \'{"decision": "approve"}\'',),
    "RYN416": ("reyn resume order-17", "reyn fork order-17 --skill hello"),
    "RYN417": ("reyn show order-17", "reyn fork order-17 --at 12"),
    "RYN418": ("reyn verify order-17", "reyn export order-17 order-17.reyn", "reyn import order-17.reyn"),
    "RYN419": ("reyn ops", "reyn resume order-17"),
    "RYN420": ("reyn runs", "reyn prune --older-than 30d --dry-run"),
    "RYN421": ("reyn fork order-17", "reyn rerun order-17"),
    "RYN422": ("reyn import runs.reyn --max-bytes 4000000000",),
    "RYN425": ("reyn doctor",),
    "RYN426": ("reyn chats", "reyn chats show tea"),
    "RYN501": ("reyn models", 'reyn run hello \'{"name": "Ada"}\' --model scripted:answers.jsonl'),
    "RYN503": ("reyn resume order-17 --retry",),
    "RYN504": ("reyn frame order-17 12",),
    "RYN506": ("reyn models", "reyn resume order-17 --retry"),
    "RYN507": ("reyn resume order-17 --retry",),
    "RYN508": ("reyn secret set OPENAI_API_KEY", "reyn resume order-17 --retry"),
    "RYN511": ("pip install 'reyn[local]'", "reyn models pull smollm2"),
    "RYN512": ("reyn context order-17", "reyn resume order-17 --retry --model local"),
    "RYN513": ("reyn resume order-17 --retry",),
    "RYN515": ("reyn models pull smollm2",),
    "RYN520": ("pip install 'reyn[prices]'", "reyn resume order-17 --retry"),
    "RYN522": ("reyn usage", "reyn resume order-17 --raise run_tokens=200000"),
    "RYN533": ("reyn resume order-17 --retry",),
    "RYN540": ("reyn resume order-17 --retry",),
    "RYN601": ("reyn show order-17", "reyn resume order-17 --raise run_tokens=200000"),
    "RYN602": ("reyn config explain limits",),
    "RYN701": ("reyn config", "reyn config explain limits", "reyn doctor"),
    "RYN702": ("reyn --project shop runs",),
    "RYN704": ("reyn secret set OPENAI_API_KEY", "reyn secret list"),
    "RYN706": ("reyn secret set OPENAI_API_KEY",),
    "RYN708": ("reyn ops file",),
    "RYN709": ("reyn ops", "reyn ops file"),
    "RYN710": ("reyn --help", "reyn run --help"),
    "RYN712": ("reyn secret allow OPENAI_API_KEY https://api.openai.com",),
    "RYN719": ("reyn config", "reyn config explain limits"),
    "RYN720": ("pip install 'reyn[tokens]'",),
    "RYN735": ("reyn mcp test notes",),
    "RYN736": ("reyn mcp add notes -- python notes_server.py", "reyn mcp list"),
    "RYN737": ("reyn mcp test notes",),
    "RYN900": ("reyn --debug show order-17",),
}
"""Commands for a code. `order-17` stands for a run of the reader's project."""
