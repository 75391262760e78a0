"""`start_skill` where nothing executes background runs is refused with the reason, and no run is recorded."""

from __future__ import annotations

from pathlib import Path

from tests.kernel.support import Project
from tests.support import act, finish, write_skill


def test_a_conversation_without_a_chat_cannot_start_a_skill_in_the_background(tmp_path: Path):
    write_skill(
        tmp_path,
        "talk",
        {"a": ["a", "end"]},
        phase_keys={"a": "conversation: true\n"},
        inputs={"a": "note | user_message"},
        ops={"a": "start_skill"},
    )
    write_skill(tmp_path, "report", {"a": ["end"]})
    project = Project(tmp_path)
    started = act({"kind": "start_skill", "skill": "report", "input": {"text": "x"}})
    result = project.run("talk", [started, finish()], "hello")
    assert result.status == "finished"
    [completed] = project.events("start_skill_completed")
    assert completed["status"] == "error"
    assert "only a chat" in project.journal.blob(completed["result"]).decode()
    assert [row.run_id for row in project.journal.runs("")] == ["k"]
    assert project.is_sound()
