"""The op `notify`: queue a message for a channel, as one JSON file per message in the run's workspace.

A complete op in one module: its specification, `plan` and `perform`. The entry point in `pyproject.toml` registers it.
"""

from __future__ import annotations

import hashlib
import json

from reyn.ops import Call, Denied, Env, Plan, Result, plan_write
from reyn.vocabulary.schemas import single_form, text


class NotifyOp:
    spec = single_form(
        "notify",
        "Queue a message for a channel.",
        "reconcilable",
        {"channel": text(80, min_length=1), "message": text(2_000, min_length=1)},
        results={"channel": {"type": "string"}, "queued_as": {"type": "string"}},
        example={"channel": "ops", "message": "The nightly report is ready."},
        permission="tool",
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        """Plan the file under a name derived from the call's key, so that a second attempt writes it once.

        Reyn applies the planned change, records it and can undo it.
        """
        name = f"{hashlib.sha256(call.key.encode()).hexdigest()[:16]}.json"
        body = json.dumps({"channel": call.args["channel"], "message": call.args["message"]})
        return plan_write(call, env, f"workspace:outbox/{name}", body, channel=call.args["channel"], queued_as=name)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        """Never called: every plan of this op is complete."""
        raise NotImplementedError
