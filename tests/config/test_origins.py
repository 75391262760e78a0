from pathlib import Path

import msgspec
import pytest

from reyn.config import Config
from reyn.config.load import Setting, explain_config, load_sources, select_settings
from reyn.errors import ConfigInvalid, SettingUnknown


def explain(root: Path, flags=None, environ=None) -> list[Setting]:
    return explain_config(load_sources(root, flags, {"XDG_CONFIG_HOME": str(root / "config")} | (environ or {})))


def origins(root: Path, flags=None, environ=None) -> dict[str, str]:
    return {setting.key: setting.origin for setting in explain(root, flags, environ)}


def test_settings_that_nothing_sets_come_from_the_default(tmp_path: Path):
    settings = explain(tmp_path)
    assert {setting.origin for setting in settings} == {"default"}
    assert {setting.key.partition(".")[0] for setting in settings} == set(Config.__struct_fields__)
    assert {setting.key: setting.value for setting in settings}["sizes.answer_depth"] == 64


def test_the_source_with_the_highest_precedence_is_the_origin(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("strict: true\nmodels:\n  light: a\n  strong: b\nlimits:\n  tokens: 5\n")
    (tmp_path / "reyn.local.yaml").write_text("models: {strong: c}\nmax_act_turns: 3\n")
    actual = origins(tmp_path, {"max_act_turns": 2}, {"REYN_STRICT": "false", "REYN_LIMITS": "{tokens: 6}"})
    assert {key: origin for key, origin in actual.items() if origin != "default"} == {
        "strict": "REYN_STRICT",
        "models.light": "reyn.yaml:3",
        "models.strong": "reyn.local.yaml:1",
        "limits.tokens": "REYN_LIMITS",
        "max_act_turns": "flag",
    }


def test_a_key_set_to_its_default_value_has_the_file_as_origin(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("models: {}\noutput_language: null\n")
    actual = origins(tmp_path)
    assert (actual["models"], actual["output_language"]) == ("reyn.yaml:1", "reyn.yaml:2")


def test_values_are_those_of_the_loaded_configuration(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("max_phase_visits: 3\nsizes: {answer_bytes: 7}\n")
    config = msgspec.to_builtins(explain(tmp_path))
    assert {setting["key"]: setting["value"] for setting in config if setting["origin"] != "default"} == {
        "max_phase_visits": 3,
        "sizes.answer_bytes": 7,
    }


def test_a_key_or_a_section_can_be_selected(tmp_path: Path):
    settings = explain(tmp_path)
    assert [setting.key for setting in select_settings(settings, "limits.tokens")] == ["limits.tokens"]
    assert len(select_settings(settings, "limits")) == 11
    with pytest.raises(SettingUnknown, match="no setting `size`") as unknown:
        select_settings(settings, "size")
    assert unknown.value.hint == "Did you mean `sizes`?"


def test_an_invalid_configuration_is_an_error(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("strct: true\n")
    with pytest.raises(ConfigInvalid, match="strct"):
        explain(tmp_path)
