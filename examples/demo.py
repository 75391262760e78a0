"""`make demo`: a real model in this process writes a headline, is killed in the middle of it, and goes on.

The skill is `headline` from the standard library, the model is the smallest there is: 135 million parameters, no key,
no network at run time. Everything is what a user would type; the demo only does the killing.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

from reyn import SyncRuntime
from reyn.kernel.ports import TimedIds

PROJECT = Path(__file__).parent / "headline"
REYN = str(Path(sys.executable).parent / "reyn")
TEXT = "The old mill opens again on Monday."
SECONDS_INTO_THE_ANSWER = 0.3


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def reyn(*words: str) -> None:
    print(f"$ reyn {shlex.join(words)}", flush=True)
    subprocess.run([REYN, *words], cwd=PROJECT, check=True)


def run_and_kill(run_id: str) -> None:
    """Start the run as a user would; kill it with SIGKILL while the model writes its second answer."""
    words = ("run", "headline", TEXT, "--run-id", run_id)
    print(f"$ reyn {shlex.join(words)}", flush=True)
    run = subprocess.Popen([REYN, *words], cwd=PROJECT)
    with SyncRuntime.open(PROJECT) as runtime:
        while run.poll() is None and questions(runtime, run_id) < 2:
            time.sleep(0.05)
    time.sleep(SECONDS_INTO_THE_ANSWER)
    run.kill()
    run.wait()
    print("\n*** kill -9 ***", flush=True)


def questions(runtime: SyncRuntime, run_id: str) -> int:
    """How often the model was asked so far, as the journal has it; another process is writing it."""
    if all(row.run_id != run_id for row in runtime.runs()):
        return 0
    return sum(event.kind == "llm_requested" for event in runtime.events(run_id))


def main() -> None:
    began = time.monotonic()
    run_id = TimedIds().new()
    say("1. The model: fetched once, checked against its SHA-256, kept in your cache.")
    reyn("models", "pull", "smollm2")
    say("2. The skill `headline` runs on it: two phases. It is killed while the model writes its second answer.")
    run_and_kill(run_id)
    say("3. It is resumed. The first answer is in the journal and is not asked for again.")
    reyn("resume", run_id)
    say("4. What happened, as the journal tells it; the record is whole, and the rules derive every event of it again.")
    reyn("show", run_id)
    reyn("verify", run_id)
    reyn("replay", run_id)
    say(f"That took {time.monotonic() - began:.0f} s. Try next, in examples/headline:")
    print("  ../../.venv/bin/reyn run headline 'Heavy rain has closed the bridge over the river.'")
    print(f"  ../../.venv/bin/reyn frame {run_id}        # the exact text the model saw last")
    print(f"  ../../.venv/bin/reyn events {run_id}       # every event")
    print(
        "\nThe model is very small. Its answers have the right shape, because a grammar holds them to it; what they say"
    )
    print("is often poor. README.md tells what it can do, docs/models.md how to use a larger one.")


if __name__ == "__main__":
    main()
