"""The example `change`: handoffs between three phases. It is the skill of the guide, file by file."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from reyn import SyncRuntime

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/change"
GUIDE = ROOT / "docs/guides/pass-context.md"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_phase_sees_what_its_manifest_selects_of_the_phases_before_it(project: Path):
    with SyncRuntime.open(project) as rt:
        result = rt.run("change", "Publish the winter opening hours.", run_id="c")
        assert result.ok
        assert result.path == ("discovery", "implementation", "validation")
        built = [event.seq for event in rt.runs.events("c") if event.kind == "frame_built"]
        prompts = ["\n".join(text for _, text in rt.runs.prompt_at("c", seq)) for seq in built]
        assert "# Handoff" not in prompts[0]
        assert "The hours on holidays are not confirmed." in prompts[1]
        assert "Artifacts: output/hours.md" in prompts[-1]
        assert "Use the 24-hour clock." not in prompts[-1]
        assert rt.runs.replay("c").status == "finished"


def test_the_guide_shows_the_files_of_the_example():
    shown = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', GUIDE.read_text(encoding="utf-8"), re.DOTALL))
    files = [path for path in sorted(EXAMPLE.rglob("*")) if path.is_file() and ".reyn" not in path.parts]
    names = [str(path.relative_to(EXAMPLE)) for path in files if path.name != "reyn.yaml"]
    assert len(names) == 8
    for name in names:
        assert shown[name] == (EXAMPLE / name).read_text(encoding="utf-8"), name
