"""`make demo`: a run is killed half-way, resumed, looked at, checked and derived again.

The model is scripted: its answers stand in examples/greeting/answers.jsonl. Everything else is real.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from reyn import ModelReply, ModelRequest, OSRuntime
from reyn.kernel.ports import TimedIds
from reyn.models.scripted import ScriptedModel

PROJECT = Path(__file__).parent / "greeting"
REYN = str(Path(sys.executable).parent / "reyn")
MODEL = "scripted:answers.jsonl"
INPUT = '{"name": "Ada", "occasion": "harvest dinner"}'


class Slow(ScriptedModel):
    """The scripted model, but it takes its time over the second answer, so that there is something to kill."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        if request.answered == 1:
            print("asked for the second answer", flush=True)
            await asyncio.sleep(60)
        return await super().complete(request)


async def start(run_id: str) -> None:
    model = Slow.from_file(PROJECT / "answers.jsonl", MODEL)
    async with OSRuntime.open(PROJECT, model=model) as rt:
        await rt.run("hello", {"name": "Ada", "occasion": "harvest dinner"}, run_id=run_id)


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def reyn(*words: str) -> None:
    shown = " ".join(word if " " not in word else f"'{word}'" for word in words)
    print(f"$ reyn {shown}", flush=True)
    subprocess.run([REYN, *words], cwd=PROJECT, check=True)


def main() -> None:
    run_id = TimedIds().new()
    print("This demo runs on the scripted model: its answers are read from a file, no key and no network are needed.")
    say("1. A run of the skill `hello` starts, and is killed with SIGKILL while the model thinks about its answer.")
    child = subprocess.Popen([sys.executable, __file__, run_id], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait()
    reyn("runs")
    say("2. It is resumed. The first answer is recorded and not asked for again.")
    reyn("resume", run_id)
    say("3. What it did, as the journal tells it.")
    reyn("show", run_id)
    say("4. The record is whole, and the rules derive every event of it again.")
    reyn("verify", run_id)
    reyn("replay", run_id)
    say("Try next, in examples/greeting:")
    print(f"  ../../.venv/bin/reyn events {run_id}")
    print(f"  ../../.venv/bin/reyn run hello '{INPUT}'")
    print("  ../../.venv/bin/reyn run hello '{\"name\": 7}'      # refused, with a code and a hint")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(start(sys.argv[1]))
    else:
        main()
