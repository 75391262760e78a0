"""The user configuration outside of all projects."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.config.load import load_config
from reyn.config.user import TrustEntry, UserConfig, UserConfigFile, user_config
from reyn.errors import ConfigInvalid, UserConfigUnavailable

DIGEST = "0" * 64


@pytest.fixture
def own(tmp_path: Path) -> UserConfigFile:
    (tmp_path / "reyn").mkdir(mode=0o700)
    return UserConfigFile(tmp_path / "reyn" / "config.yaml")


def write(own: UserConfigFile, text: str) -> None:
    assert own.path is not None
    own.path.write_text(text)
    own.path.chmod(0o600)


def test_the_path_follows_xdg_config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert user_config({"XDG_CONFIG_HOME": str(tmp_path)}).path == tmp_path / "reyn" / "config.yaml"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_config({"XDG_CONFIG_HOME": "relative"}).path == tmp_path / ".config" / "reyn" / "config.yaml"


def test_without_a_file_or_a_home_nothing_is_configured(own: UserConfigFile, monkeypatch: pytest.MonkeyPatch):
    assert own.read() == UserConfig()
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert user_config({}).read() == UserConfig()
    with pytest.raises(UserConfigUnavailable):
        user_config({}).allow("secret://K", "https://a.example")


def test_models_of_the_user_are_below_those_of_a_project(tmp_path: Path, own: UserConfigFile):
    write(own, "models:\n  light: local\n  strong: {model: openai:big, retries: 1}\n")
    root = tmp_path / "project"
    root.mkdir()
    (root / "reyn.yaml").write_text("models: {light: scripted:a.jsonl, strong: {timeout: 9}}\n")
    models = load_config(root, environ={"XDG_CONFIG_HOME": str(tmp_path)}).models
    assert models["light"] == "scripted:a.jsonl"
    assert (models["strong"].model, models["strong"].retries, models["strong"].timeout) == ("openai:big", 1, 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: local\n", "unknown key `model`"),
        ("projcts: {}\n", "did you mean `projects`"),
        ("projects: {/a: {wants: short}}\n", "the digest of the settings that need trust"),
        ("secrets: {OPENAI: [https://a.example]}\n", "a key of `secrets` must be a handle"),
        ("secrets: {'secret://K': ['https://a.example/v1']}\n", "is more than an origin"),
        ("secrets: {'secret://K': https://a.example}\n", "`secrets.secret://K` must be a list"),
        (
            "models: {far: {model: openai:m, key: sk-abcdef}}\n",
            "`models.far.key` must be `secret://NAME`, `env://VARIABLE` or `null`",
        ),
        ("[1]\n", "must be a mapping"),
        ("a: [\n", "invalid YAML"),
    ],
)
def test_mistakes_are_reported_with_their_position(own: UserConfigFile, text: str, message: str):
    write(own, text)
    with pytest.raises(ConfigInvalid) as caught:
        own.read()
    assert message in caught.value.message
    assert f"{own.path}:" in caught.value.message
    assert "sk-abcdef" not in caught.value.message


def test_a_file_that_others_can_change_is_refused(own: UserConfigFile):
    write(own, "models: {}\n")
    assert own.path is not None
    own.path.chmod(0o644)
    assert own.read() == UserConfig()
    own.path.chmod(0o664)
    with pytest.raises(UserConfigUnavailable, match="other users can change it"):
        own.read()


def test_updates_leave_the_rest_of_the_file_as_it_is(own: UserConfigFile):
    write(
        own,
        "# mine\nmodels:\n  light: local  # small\nprojects:\n  /old: {wants: '" + DIGEST + "'}\n"
        "\n# bindings\nsecrets:\n  secret://A: [https://a.example]\n# the end\n",
    )
    own.allow("secret://B", "https://b.example")
    own.decide(Path("/new: #place"), TrustEntry(DIGEST, trusted=False))
    own.allow("secret://A", "https://c.example:8443")
    assert own.path is not None
    text = own.path.read_text()
    for kept in ("# mine\nmodels:\n  light: local  # small\n", "\n# bindings\nsecrets:\n", "# the end\n"):
        assert kept in text
    config = own.read()
    assert config.secrets == {
        "secret://A": ("https://a.example", "https://c.example:8443"),
        "secret://B": ("https://b.example",),
    }
    assert config.projects == {"/old": TrustEntry(DIGEST), "/new: #place": TrustEntry(DIGEST, trusted=False)}
    assert own.decide(Path("/old"), None)
    assert not own.decide(Path("/old"), None)
    assert own.revoke("secret://A") == ("https://a.example", "https://c.example:8443")
    assert own.revoke("secret://B", "https://x.example") == ()
    assert own.read().secrets == {"secret://B": ("https://b.example",)}


def test_the_first_update_creates_a_private_file(tmp_path: Path):
    own = UserConfigFile(tmp_path / "config" / "reyn" / "config.yaml")
    own.allow("env://K", "https://a.example")
    assert own.path is not None
    assert (own.path.stat().st_mode & 0o777, own.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_file_in_flow_style_is_not_rewritten(own: UserConfigFile):
    text = "{models: {light: local}}\n"
    write(own, text)
    with pytest.raises(UserConfigUnavailable, match="cannot edit"):
        own.allow("secret://K", "https://a.example")
    assert own.path is not None
    assert own.path.read_text() == text
