"""A shopping assistant with two tools and a memory. Each call is a turn of one conversation, also after a crash.

python assistant.py "I cook for four. What do noodles cost?"
python assistant.py "Put enough of them on my list."
python assistant.py --resume                   continue a turn that was interrupted
python assistant.py --model local "Hello"      another model; by default the scripted one of reyn.yaml
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from reyn import OSRuntime
from reyn.chat import OpFinished, OpRequested, Reply, ReplyDelta
from reyn.errors import ReynError
from reyn.functions import LLMChat, llm_chat, tool

ROOT = Path(__file__).parent
PRICES = {"noodles": 3.10, "tomatoes": 2.40, "basil": 1.90}


@tool(effect="pure", permission=None)
def look_up(item: str) -> dict[str, float]:
    """Return the price of an item in the shop; nothing if the shop does not have it.

    Args:
        item: The name of the item, in lower case.
    """
    return {item: PRICES[item]} if item in PRICES else {}


@tool(effect="idempotent", permission=None)
def add_to_list(item: str, amount: int) -> dict[str, int]:
    """Set how much of an item is on the shopping list; return the whole list.

    Args:
        item: The name of the item.
        amount: How many to buy.
    """
    path = Path.cwd() / "shopping.json"
    items: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    items[item] = amount
    path.write_text(json.dumps(items))
    return items


def make_assistant(runtime: OSRuntime, turns: int) -> LLMChat[[str]]:
    """Return the assistant on a runtime. It may use tools in this many turns of a call."""

    @llm_chat(toolkit=[look_up, add_to_list], runtime=runtime, max_act_turns=turns)
    async def assistant(message: str) -> None:
        """You help with shopping. Look prices up, keep the list, and remember what matters for later."""

    return assistant


async def talk(arguments: argparse.Namespace) -> int:
    """Take one turn and print it."""
    runtime = OSRuntime.open(arguments.project, model=arguments.model, trust=True)
    assistant = make_assistant(runtime, arguments.turns).options(key=arguments.key)
    try:
        async for item in assistant.resume() if arguments.resume else assistant(arguments.message):
            match item:
                case ReplyDelta(text):
                    print(text, end="", flush=True)
                case OpRequested(_, name, values):
                    print(f"[{name} {json.dumps(values)}]", flush=True)
                case OpFinished(_, name, status) if status != "ok":
                    print(f"[{name}: {status}]", flush=True)
                case Reply(status="aborted"):
                    print("[aborted]")
                case Reply():
                    print()
    except ReynError as error:
        print(f"error {error.code}: {error.message}", file=sys.stderr)
        return 1
    finally:
        await runtime.aclose()
    return 0


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Talk to the shopping assistant.")
    parser.add_argument("message", nargs="?", default="", help="what you say")
    parser.add_argument("--key", default="me", help="the name of the conversation")
    parser.add_argument("--model", help="the model to use")
    parser.add_argument("--project", type=Path, default=ROOT, help="the folder with reyn.yaml")
    parser.add_argument("--turns", type=int, default=10, help="in how many turns it may use tools")
    parser.add_argument("--resume", action="store_true", help="continue a turn that was interrupted")
    arguments = parser.parse_args()
    if not arguments.message and not arguments.resume:
        parser.error("say something, or pass --resume")
    return asyncio.run(talk(arguments))


if __name__ == "__main__":
    sys.exit(main())
