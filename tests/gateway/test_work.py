"""What a server executes: nothing with `--no-work`, and nothing more once it ends, so that all of it can be resumed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reyn.gateway import Gateway, create_app
from reyn.models import ModelAnswer, ModelRequest
from reyn.testing import ScriptedModel
from tests.gateway.support import HOST, QUESTION, Served, ended, run_async, serving
from tests.support import finish, go

PAIR = {"skill": "pair", "input": {"text": "in"}, "run_id": "k"}


def test_a_server_that_executes_nothing_shows_runs_and_stores_replies(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, [QUESTION, finish("thanks")]) as working:
            async with working.http(working.token()) as http:
                await http.post("/api/runs", json={"skill": "asker", "input": {"text": "in"}, "run_id": "asks"})
                await ended(http, "asks")
            runtime = working.site.runtime
            site = Gateway(runtime, may_work=False)
            showing = Served(site, create_app(site, [HOST]))
            async with showing.http(showing.token(name="grace")) as http:
                for path, body in (
                    ("/api/runs", PAIR),
                    ("/api/runs/asks/resume", {}),
                    ("/api/runs/asks/rerun", {}),
                    ("/api/runs/asks/fork", {"at": 3}),
                    ("/api/conversations", {"text": "hi"}),
                ):
                    refused = await http.post(path, json=body)
                    assert (refused.status_code, refused.json()["code"]) == (409, "RYN402"), path
                assert [row["run_id"] for row in (await http.get("/api/runs")).json()["runs"]] == ["asks"]
                stored = await http.post("/api/runs/asks/answer", json={"value": "the blue one"})
                assert (stored.status_code, stored.json()["is_continued"]) == (202, False)
                assert (await http.get("/api/runs/asks")).json()["run"]["status"] == "waiting"
            await site.close()
            assert (await runtime.resume("asks")).artifact["data"] == {"text": "thanks"}

    run_async(work)


class Held(ScriptedModel):
    """Answers the second call when it is permitted to."""

    def __init__(self) -> None:
        super().__init__([go("second"), finish("at last")])
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.phase == "second":
            self.asked.set()
            await self.may_answer.wait()
        return await super().complete(request)


def test_a_server_that_ends_interrupts_its_runs_and_ends_its_streams(tmp_path: Path):
    async def work() -> None:
        model = Held()
        async with serving(tmp_path, [], model=model) as served, served.http(served.token()) as http:
            assert (await http.post("/api/runs", json=PAIR)).status_code == 202
            streams = [http.get("/api/stream"), http.get("/api/runs/k/stream", params={"follow": "true"})]
            reading = [asyncio.ensure_future(stream) for stream in streams]
            await model.asked.wait()
            while served.site.streams.total() < len(reading):  # noqa: ASYNC110 - a stream that is open tells nobody
                await asyncio.sleep(0)
            await served.site.close()
            for response in await asyncio.gather(*reading):
                assert response.status_code == 200
            assert served.site.work.count == 0
            late = await http.get("/api/stream")
            assert (late.status_code, late.json()["code"]) == (429, "RYN805")
            row = (await http.get("/api/runs/k")).json()["run"]
            assert (row["display_status"], row["next"]["verb"]) == ("running (interrupted)", "resume")
            model.may_answer.set()
            runtime = served.site.runtime
            assert (await runtime.resume("k")).artifact["data"] == {"text": "at last"}
            assert runtime.runs.verify("k").events

    run_async(work)
