"""A link in the folder of memories shows no other file: links are not followed, and a rule covers what is read.

The attacker is a clone that contains links, which git stores. The oracle is the text of the file that they lead to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.chat.services.memory_service import MemoryService
from tests.kernel.support import Project
from tests.support import act, finish, write_skill

CANARY = "CANARY merger with Initech"
MEMORY = f"---\nname: plan\ndescription: {CANARY}\n---\n{CANARY}\n"
LINKS = {
    "a denied file": ("private/plan.md", "reyn/memory/plan.md", "../../private/plan.md"),
    "a hidden file": (".notes.md", "reyn/memory/plan.md", "../../.notes.md"),
    "a denied memory": ("reyn/memory/closed.md", "reyn/memory/plan.md", "closed.md"),
    "a memory of another agent": ("reyn/memory/clerk/plan.md", "reyn/memory/plan.md", "clerk/plan.md"),
    "the folder of an agent": ("private/plan.md", "reyn/memory/s", "../../private"),
    "the folder of memories": ("private/plan.md", "reyn/memory", "../private"),
    "an absolute link": ("private/plan.md", "reyn/memory/plan.md", "{root}/private/plan.md"),
}
RULES = {"file.read": [{"deny": ["private/", "reyn/memory/closed.md"]}]}


@pytest.mark.parametrize("kind", LINKS)
def test_a_link_among_memories_shows_no_other_file(tmp_path: Path, kind: str):
    target, link, leads_to = LINKS[kind]
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "recall"}, skill_keys="permissions: {memory: true}\n")
    for path, text in ((target, MEMORY), ("reyn/memory/tea.md", "---\nname: tea\n---\nGreen tea.\n")):
        if path != "reyn/memory/tea.md" or link != "reyn/memory":
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
    (tmp_path / link).symlink_to(leads_to.format(root=tmp_path))
    project = Project(tmp_path)
    project.run("s", [act({"kind": "recall", "query": "merger initech tea"}), finish()], permissions=RULES)
    [result] = project.results()
    assert result["status"] == "ok"
    assert CANARY not in str(result) + "".join(str(one.messages) for one in project.model.requests)
    assert ("Green tea." in str(result)) == (link != "reyn/memory"), "what is no link is found"
    assert CANARY not in str(MemoryService(tmp_path).all("s"))
    listed = {one.name: one.error for one in MemoryService(tmp_path).all("shared")}
    assert "is a link" in listed["plan"] if link.endswith(".md") else "plan" not in listed
