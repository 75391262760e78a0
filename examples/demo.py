"""`make demo`: a real model in this process writes a headline, is killed in the middle of it, and goes on.

The skill is `headline` from the standard library, the model is the smallest there is: 135 million parameters, no key,
no network at run time. Everything is what a user would type; the demo only does the killing.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from reyn import SyncRuntime
from reyn.cli.progress import Progress
from reyn.kernel.ports import TimedIds

if TYPE_CHECKING:
    from reyn.models import Delta

PROJECT = Path(__file__).parent / "headline"
REYN = str(Path(sys.executable).parent / "reyn")
TEXT = "The old mill opens again on Monday."
WORDS = 40
"""Characters of the second answer after which the run is killed."""


class Watched(Progress):
    """Shows a run as `reyn run` does; says by a file when the model is in the middle of its second answer."""

    mark: Path
    received = 0

    def on_delta(self, delta: Delta) -> None:
        super().on_delta(delta)
        if delta.call == "2.1":
            self.received += len(delta.text)
            if self.received >= WORDS:
                self.mark.touch()


def run_watched(run_id: str, mark: Path) -> None:
    with SyncRuntime.open(PROJECT) as runtime:
        watched = Watched(runtime, err=False)
        watched.mark = mark
        result = runtime.run("headline", TEXT, run_id=run_id, listener=watched, on_delta=watched.on_delta)
    sys.exit(0 if result.ok else f"{result.status}: {result.reason}")


def run_and_kill(run_id: str) -> None:
    """Start the run; kill it with SIGKILL while the model writes its second answer."""
    print(f"$ reyn run headline {shlex.quote(TEXT)} --run-id {run_id}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "in-mid-answer"
        run = subprocess.Popen([sys.executable, __file__, run_id, str(mark)])
        while run.poll() is None and not mark.exists():
            time.sleep(0.02)
        run.kill()
        ended = run.wait()
    if ended > 0:
        sys.exit(ended)  # it said why
    print("\n*** kill -9 ***" if ended == -signal.SIGKILL else "\n(it was too fast to be killed)", flush=True)


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def reyn(*words: str) -> None:
    print(f"$ reyn {shlex.join(words)}", flush=True)
    subprocess.run([REYN, *words], cwd=PROJECT, check=True)


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
    print(f"  ../../.venv/bin/reyn frame {run_id}        # what the model saw last, and what it said")
    print(f"  ../../.venv/bin/reyn events {run_id}       # every event")
    print(
        "\nThe model is very small. Its answers have the right shape, because a grammar holds them to it; what they say"
    )
    print("is often poor. README.md tells what it can do, docs/guides/use-a-provider.md how to use a larger one.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_watched(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
