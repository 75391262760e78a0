"""Record docs/guides/chat-session.md: a conversation at a terminal, with a kill, a resume and a fork.

The commands run on a real terminal, in a temporary project, with a scripted model: the output is the same every time.
With `--check`, compare the page instead of writing it. With `--local MODEL`, record only the session on a small local
model: what it answers differs from model to model, and takes minutes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import terminal  # noqa: E402 - it is beside this file
from terminal import Program  # noqa: E402

from reyn.cli.people import user_name  # noqa: E402

PAGE = HERE.parent / "docs" / "guides" / "chat-session.md"
BEGIN, END = "<!-- session {0}: written by tools/record_chat.py -->", "<!-- end of session -->"
BUILDER = HERE.parent / "src" / "reyn" / "stdlib" / "skills" / "skill_builder" / "cases" / "approved"

_SCHEMA = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "string"}}},
    "required": ["items"],
}
FILES = {
    "reyn.yaml": "",
    "reyn/project/packing_list/skill.md": (
        "---\ntype: skill\nname: packing_list\ndescription: Write a packing list for a trip\nentry: pack\n"
        "final_output: packing_list\ngraph: {pack: [end]}\n---\nPacks for a trip.\n"
    ),
    "reyn/project/packing_list/phases/pack.md": (
        "---\ntype: phase\nname: pack\ninput: user_message\npreprocessor:\n  - ask_user:\n"
        "      question: In which season do you travel?\n      suggestions: [spring, autumn]\n"
        "      into: data.season\n---\nWrite the list.\n"
    ),
    "reyn/project/packing_list/artifacts/packing_list.yaml": json.dumps(_SCHEMA),
}


def reply(text: str) -> dict[str, Any]:
    control = {"type": "transition", "decision": "continue", "next_phase": "converse", "confidence": 0.9}
    return {
        "control": control | {"reason": {"summary": "answered"}},
        "artifact": {"type": "reply", "data": {"text": text}},
    }


def run_skill(skill: str, text: str) -> dict[str, Any]:
    return {"control_ir": [{"kind": "run_skill", "skill": skill, "input": {"text": text}}]}


def finish(artifact: str, **data: Any) -> dict[str, Any]:
    control = {"type": "finish", "decision": "finish", "next_phase": None, "confidence": 0.9}
    return {"control": control | {"reason": {"summary": "done"}}, "artifact": {"type": artifact, "data": data}}


TASKS = finish("task_list", tasks=[{"task": "Book the train", "person": "Ada", "due": "Friday"}], open_questions=[])
ANSWERS = [
    reply("Two full days. One for **Higashiyama**, one for **Arashiyama**."),
    run_skill("packing_list", "a weekend in Kyoto"),
    finish("packing_list", items=["raincoat", "umbrella", "walking shoes"]),
    reply("For autumn, pack:\n\n- a raincoat\n- an umbrella\n- walking shoes"),
    run_skill("skill_builder", "Turn the notes of a meeting into a list of tasks, each with a person and a date."),
    *(json.loads(line) for line in BUILDER.joinpath("answers.jsonl").read_text().splitlines()),
    reply("The skill `meeting_tasks` is ready."),
    run_skill("meeting_tasks", "Ada books the train by Friday."),
    TASKS,
    reply("One task: Ada books the train by Friday."),
    run_skill("packing_list", "the same in spring"),
    finish("packing_list", items=["light jacket", "walking shoes"]),
    reply("For spring, a light jacket and walking shoes."),
]
FORKED = [*ANSWERS[:1], reply("Then stay in Gion and skip Arashiyama.")]


class Recording:
    """The sessions of a page, each the text of a terminal."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environ = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("REYN_", "LC_", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES"))
        } | {"TERM": "xterm", "PROMPT_TOOLKIT_COLOR_DEPTH": "DEPTH_1_BIT", "LANG": "C.UTF-8"}
        self.environ |= {"HOME": str(folder), "USER": "ada", "REYN_MODEL": "scripted:answers.jsonl"}
        self.sessions: dict[str, str] = {}

    def start(self, *arguments: str) -> Program:
        return Program([sys.executable, "-m", "reyn", *arguments], self._folder, self.environ)

    def chat(self, *arguments: str) -> Program:
        program = self.start("chat", *arguments)
        self.wait_for_prompt(program, "leaves.")
        return program

    def say(self, program: Program, text: str, answer: str, *, held: bool = False) -> None:
        """Type a line and wait until the answer is there and the agent waits again. Enter sends a text that is held."""
        before = str(program.screen).count(answer)
        program.type(f"{text}\r")
        if held:
            program.wait_until(lambda screen: "Enter sends it" in screen, "the text that is held")
            before = str(program.screen).count(answer)
            program.type("\r")
        self.wait_for_prompt(program, answer, before)

    @staticmethod
    def wait_for_prompt(program: Program, text: str, before: int = 0) -> None:
        """Wait until a text is there once more than before, and the prompt below it."""

        def is_idle(screen: str) -> bool:
            lines = screen.split("\n")
            prompts = [number for number, line in enumerate(lines) if line.rstrip() == ">"]
            return (
                screen.count(text) > before and bool(prompts) and "replying" not in lines[-1] and " tokens" in lines[-1]
            )

        program.wait_until(is_idle, repr(text))

    def keep(self, name: str, command: str, text: str) -> None:
        """Keep what a command printed. Hashes, and the numbers of events and blobs, are not part of what it shows."""
        lines = [line.rstrip() for line in text.split("\n")]
        shown = re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip("\n"))
        shown = re.sub(rf"\({re.escape(user_name())}\)$", "(ada)", shown, flags=re.MULTILINE)
        shown = re.sub(r"^\d\d:\d\d · ", "17:05 · ", shown, flags=re.MULTILINE)
        shown = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", "…", shown)
        shown = re.sub(r"\b\d+( of \d+)? (events|blobs)\b", r"… \2", shown)
        known = self.sessions.get(name, "")
        self.sessions[name] = f"{known}$ {command}\n{shown}\n"


def record() -> dict[str, str]:
    """Hold the conversation; return the sessions by name."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for path, content in FILES.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)
        (root / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in ANSWERS))
        (root / "forked.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in FORKED))
        recording = Recording(root)
        _talk(recording)
        return recording.sessions


def _talk(recording: Recording) -> None:
    chat = recording.chat("--run-id", "kyoto")
    recording.say(chat, "How many days does Kyoto need?", "Arashiyama")
    recording.say(chat, "What do I pack?", "2. autumn")
    recording.say(chat, "2", "walking shoes", held=True)
    chat.type("\x04")
    recording.keep("question", "reyn chat --run-id kyoto", chat.finish())

    chat = recording.chat("--continue")
    recording.say(chat, "Make a skill that turns meeting notes into tasks.", "/approve 1")
    recording.say(chat, "/approve 1", "is ready")
    recording.say(chat, "Use it: Ada books the train by Friday.", "One task")
    chat.type("\x04")
    recording.keep("build", "reyn chat --continue", chat.finish())

    chat = recording.chat("--continue")
    recording.say(chat, "And in spring?", "2. autumn")
    recording.keep("kill", "reyn chat --continue", chat.kill() + "\nKilled")
    chat = recording.chat("--continue")
    recording.wait_for_prompt(chat, "2. autumn")
    recording.say(chat, "1", "For spring", held=True)
    chat.type("\x04")
    recording.keep("resume", "reyn chat --continue", chat.finish())

    arguments = ["--fork", "kyoto@2", "--run-id", "kyoto-b", "--model", "scripted:forked.jsonl"]
    chat = recording.chat(*arguments)
    recording.say(chat, "And if I have one day only?", "Gion")
    chat.type("\x04")
    recording.keep("fork", f"reyn chat {' '.join(arguments)}", chat.finish())

    for command in ("verify kyoto", "replay kyoto", "verify kyoto-b", "replay kyoto-b"):
        recording.keep("check", f"reyn {command}", recording.start(*command.split()).finish())


GUIDE = (
    "---\ntype: agent\nname: guide\ndescription: Helps people who travel\nskills: [packing_list]\n"
    "allowed_ops: [start_skill]\n---\nYou help people who travel. Answer in one or two sentences.\n"
)


def record_local(model: str) -> dict[str, str]:
    """Hold a short conversation with a local model, in which a message comes while a question is open."""
    terminal.SECONDS = 900
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for path, content in (FILES | {"reyn/agents/guide.md": GUIDE}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)
        recording = Recording(root)
        recording.environ["REYN_MODEL"] = model
        chat = recording.chat("guide", "--run-id", "kyoto")
        asks = "packing_list asks: In which season do you travel?"
        recording.say(chat, "Make a packing list for my trip to Kyoto.", asks)
        recording.say(chat, "Thanks, that is all for now.", asks, held=True)
        recording.say(chat, "2", "· kyoto.1.1.1 reported", held=True)
        chat.type("\x04")
        recording.keep("local", "reyn chat guide --run-id kyoto", chat.finish())
        recording.keep("local", "reyn chats show kyoto", recording.start("chats", "show", "kyoto").finish())
        return recording.sessions


def rendered(page: str, sessions: dict[str, str]) -> str:
    """Return the page with the sessions between its markers."""
    for name, text in sessions.items():
        begin = BEGIN.format(name)
        before, found, rest = page.partition(begin)
        _, end, after = rest.partition(END)
        if not (found and end):
            raise SystemExit(f"{PAGE} has no markers for the session `{name}`: {begin} … {END}")
        page = f"{before}{begin}\n\n```text\n{text}```\n\n{END}{after}"
    return page


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    arguments = sys.argv[1:]
    new = rendered(page, record_local(arguments[1]) if arguments[:1] == ["--local"] else record())
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(new, encoding="utf-8")
        return 0
    if new != page:
        import difflib

        old_lines, new_lines = page.splitlines(keepends=True), new.splitlines(keepends=True)
        sys.stderr.writelines(difflib.unified_diff(old_lines, new_lines, "page", "recorded"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
