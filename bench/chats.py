"""Measure conversations with an agent: `python -m bench.chats` prints the CPU of a turn by length and surroundings.

The model answers at once, so everything is Reyn's own work: the message through the inbox, the routing phase with its
overviews, the decision, the reply, durable events. Ratios are taken between parts of one process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from reyn import ModelAnswer, ModelRequest, OSRuntime

SHORT = 10
MAX_MS, MAX_GROWTH, MAX_RESUME_SECONDS, MAX_CROWDED = 5.0, 1.5, 0.5, 2.0
_AROUND = 40
TEXT = "What does the invoice of the third of May say about the price of noodles?"


class Clerk:
    """Replies to every message with the same sentence."""

    name = "clerk"
    takes_time = False

    def __init__(self) -> None:
        control = {"type": "transition", "decision": "continue", "next_phase": "converse", "confidence": 1}
        self._answer = ModelAnswer(
            json.dumps(
                {
                    "control": control | {"reason": {"summary": "answered"}},
                    "artifact": {"type": "reply", "data": {"text": "It says three euros and ten cents a packet."}},
                }
            )
        )

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return self._answer


def write_project(root: Path, *, skills: int = 0, memories: int = 0) -> None:
    """Write skills that the agent can run, and memories that it can recall."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    (root / "reyn.yaml").write_text("model: clerk\n")
    (root / "reyn" / "agents").mkdir(parents=True)
    (root / "reyn" / "agents" / "clerk.md").write_text(
        "---\ntype: agent\nname: clerk\nbudget: {transcript: 100000000}\n---\nYou answer questions about invoices.\n"
    )
    for number in range(skills):
        folder = root / "reyn" / "project" / f"skill_{number}"
        (folder / "phases").mkdir(parents=True)
        (folder / "artifacts").mkdir()
        (folder / "skill.md").write_text(
            f"---\ntype: skill\nname: skill_{number}\ndescription: Make a document of kind {number}\nentry: work\n"
            "final_output: note\ngraph: {work: [end]}\n---\nWork.\n"
        )
        (folder / "phases" / "work.md").write_text(
            "---\ntype: phase\nname: work\ninput: user_message\n---\nWork on it.\n"
        )
        (folder / "artifacts" / "note.yaml").write_text(json.dumps(schema))
    folder = root / "reyn" / "memory"
    folder.mkdir(parents=True)
    for number in range(memories):
        (folder / f"fact-{number}.md").write_text(
            f"---\ndescription: The price of item {number}\n---\nItem {number} costs {number} euros.\n"
        )


async def talk(root: Path, turns: int) -> list[float]:
    """Hold a conversation of so many turns; return the CPU of each, in milliseconds."""
    spent = []
    async with OSRuntime.open(root, model=Clerk(), trust=True) as rt, rt.chat("clerk", run_id="c") as chat:
        for _ in range(turns):
            started = time.process_time()
            await chat.say(TEXT)
            spent.append(1e3 * (time.process_time() - started))
    return spent


async def resume(root: Path) -> float:
    """Open a conversation again and wait until it is ready; return the CPU in seconds."""
    started = time.process_time()
    async with OSRuntime.open(root, model=Clerk(), trust=True) as rt, rt.chat(run_id="c") as chat:
        await chat.ready()
        return time.process_time() - started


def measure(turns: int, *, skills: int = 0, memories: int = 0) -> tuple[list[float], float]:
    """Return the CPU of each turn of a conversation, and that of resuming it."""
    with tempfile.TemporaryDirectory(prefix="reyn-chats-") as folder:
        write_project(Path(folder), skills=skills, memories=memories)
        spent = asyncio.run(talk(Path(folder), turns))
        return spent, asyncio.run(resume(Path(folder)))


def around(spent: list[float], turn: int) -> float:
    """Return the median CPU of the turns around one; the first turn also loads the skill."""
    first = max(1, min(turn - _AROUND // 2, len(spent) - _AROUND))
    return statistics.median(spent[first : first + _AROUND])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chats", description=__doc__)
    parser.add_argument("--turns", type=int, default=5_000, help="length of the long conversation")
    parser.add_argument("--resumed", type=int, default=2_000, help="length of the conversation that is resumed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    spent, _ = measure(options.turns)
    short, long = around(spent, SHORT), around(spent, options.turns)
    _, resumed = measure(options.resumed)
    crowded = around(measure(3 * _AROUND, skills=100, memories=1_000)[0], 2 * _AROUND)
    figures = {
        "turn_ms": short,
        "late_turn_ms": long,
        "growth": long / short,
        "resume_s": resumed,
        "crowded_turn_ms": crowded,
        "crowded": crowded / short,
    }
    met = [short <= MAX_MS, long / short <= MAX_GROWTH, resumed <= MAX_RESUME_SECONDS, crowded / short <= MAX_CROWDED]
    if options.json:
        print(json.dumps(figures | {"met": all(met)}))
        return 0 if all(met) else 1
    lines = [
        f"CPU of a turn: {short:.1f} ms after {SHORT} turns (target {MAX_MS:.0f} ms)",
        f"after {options.turns:,} turns: {long:.1f} ms ({long / short:.2f} x, target {MAX_GROWTH} x)",
        f"resume of {options.resumed:,} turns: {resumed:.2f} s of CPU (target {MAX_RESUME_SECONDS} s)",
        f"with 100 skills and 1,000 memories: {crowded:.1f} ms ({crowded / short:.2f} x, target {MAX_CROWDED} x)",
    ]
    for line, is_met in zip(lines, met, strict=True):
        print(f"{line}: {'met' if is_met else 'MISSED'}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
