"""The same loop in LangGraph with its SQLite saver in `sync` mode: CPU per step. Runs in a separate environment."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

sys.path.insert(0, str(Path(__file__).parent.parent))


class State(TypedDict):
    step: int
    item: dict[str, Any]


def main(count: int) -> float:
    """Return the CPU per step in microseconds."""
    # A copy of bench.workload.item: that module imports reyn, which this environment does not have.
    items = [
        {
            "step": step,
            "lines": [
                {"what": f"ingredient {line} of step {step}, finely chopped", "grams": line * 2.5} for line in range(30)
            ],
        }
        for step in range(count + 1)
    ]

    def work(state: State) -> State:
        step = state["step"] + 1
        return {"step": step, "item": items[step]}

    def next_node(name: str) -> Any:
        return lambda state: END if state["step"] >= count else name

    graph = StateGraph(State)
    graph.add_node("a", work)
    graph.add_node("b", work)
    graph.add_edge(START, "a")
    graph.add_conditional_edges("a", next_node("b"), ["b", END])
    graph.add_conditional_edges("b", next_node("a"), ["a", END])
    with tempfile.TemporaryDirectory() as folder, SqliteSaver.from_conn_string(f"{folder}/saver.db") as saver:
        compiled = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "measured"}, "recursion_limit": count + 10}
        started = time.process_time()
        final = compiled.invoke({"step": 0, "item": items[0]}, config, durability="sync")
        cpu = time.process_time() - started
    assert final["step"] == count
    return cpu / count * 1e6


if __name__ == "__main__":
    print(json.dumps({"cpu_us": main(int(sys.argv[1]))}))
