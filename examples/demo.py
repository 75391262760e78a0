"""`make demo`: run a skill on an embedded model, kill the process in the middle of an answer, resume the run.

The skill is `headline` from the standard library. The model has 135 million parameters and needs no key, and no network
once it is downloaded. The demo runs the commands that a user would type; only the kill is its own.
"""

from __future__ import annotations

import os
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
from reyn.kernel.runtime_types import TimedIds

if TYPE_CHECKING:
    from reyn.models import Delta

PROJECT = Path(__file__).parent / "headline"
REYN = str(Path(sys.executable).parent / "reyn")
TEXT = "The old mill opens again on Monday."
WORDS = 40
"""The process is killed after this many characters of the second answer."""


class Watched(Progress):
    """Prints progress as `reyn run` does; creates the file `mark` in the middle of the second answer."""

    mark: Path
    received = 0

    def on_delta(self, delta: Delta) -> None:
        super().on_delta(delta)
        if delta.call == "2.1":
            self.received += len(delta.text)
            if self.received >= WORDS:
                self.mark.touch()


def run_watched(run_id: str, mark: Path) -> None:
    with SyncRuntime.open(PROJECT, trust=True) as runtime:
        watched = Watched(runtime, err=False)
        watched.mark = mark
        result = runtime.run("headline", TEXT, run_id=run_id, listener=watched, on_delta=watched.on_delta)
    sys.exit(0 if result.ok else f"{result.status}: {result.reason}")


def run_and_kill(run_id: str) -> None:
    """Start the run; kill its process with SIGKILL while the model writes its second answer."""
    print(f"$ reyn run headline {shlex.quote(TEXT)} --run-id {run_id}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "in-mid-answer"
        run = subprocess.Popen([sys.executable, __file__, run_id, str(mark)])
        while run.poll() is None and not mark.exists():
            time.sleep(0.02)
        run.kill()
        ended = run.wait()
    if ended > 0:
        sys.exit(ended)  # the child printed the error
    print("\n*** kill -9 ***" if ended == -signal.SIGKILL else "\n(the run finished before the kill)", flush=True)


def heading(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def reyn(*words: str) -> None:
    print(f"$ reyn {shlex.join(words)}", flush=True)
    subprocess.run([REYN, *words], cwd=PROJECT, check=True)


def main() -> None:
    began = time.monotonic()
    run_id = TimedIds().new()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    heading(f"1. Download the model (100 MB, once), check its SHA-256, and store it in {cache}/reyn/models.")
    reyn("models", "pull", "smollm2")
    heading("2. Run the skill `headline`, which has two phases. The process is killed during the second answer.")
    run_and_kill(run_id)
    heading("3. Resume the run. The first answer is in the journal, so the model is not called for it again.")
    reyn("resume", run_id)
    heading("4. Show the recorded run, verify its hashes, and replay it without calling the model.")
    reyn("show", run_id)
    reyn("verify", run_id)
    reyn("replay", run_id)
    heading(f"Done in {time.monotonic() - began:.0f} s. Try next, in examples/headline:")
    print("  ../../.venv/bin/reyn run headline 'Heavy rain has closed the bridge over the river.'")
    print(f"  ../../.venv/bin/reyn frame {run_id}        # the last prompt and its answer")
    print(f"  ../../.venv/bin/reyn events {run_id}       # every event")
    print(f"  ../../.venv/bin/reyn serve{' ' * 31}# look at the run in a browser: /runs/{run_id}")
    print("\nThe model is very small. A grammar guarantees valid JSON, but the content of its answers is often poor.")
    print("Use it to check your installation. docs/guides/use-a-provider.md shows how to use a larger model.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_watched(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
