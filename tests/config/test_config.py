from pathlib import Path

import msgspec
import pytest

from reyn.config import Config, ModelSettings, load_config
from reyn.config.load import SECRETS
from reyn.errors import ConfigInvalid
from reyn.secrets import is_handle
from reyn.secrets.stores import variable_of


def test_without_files_everything_has_its_default(tmp_path: Path):
    assert load_config(tmp_path, environ={}) == Config()


def test_later_places_override_earlier_ones(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("max_phase_visits: 3\nmax_phase_retries: 1\nsizes: {answer_depth: 9}\n")
    (tmp_path / "reyn.local.yaml").write_text("max_phase_visits: null\nsizes: {answer_bytes: 7}\n")
    config = load_config(tmp_path, {"strict": True, "model": None}, {"REYN_MAX_PHASE_RETRIES": "5", "REYN_MODEL": "m"})
    assert (config.max_phase_visits, config.max_phase_retries, config.strict, config.model) == (None, 5, True, "m")
    assert (config.sizes.answer_depth, config.sizes.answer_bytes) == (9, 7)


def test_everything_wrong_is_told_at_once_where_it_stands(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("max_phase_visit: 3\nstrict: maybe\nmax_phase_visits: 0\n")
    (tmp_path / "reyn.local.yaml").write_text("[1, 2]")
    with pytest.raises(ConfigInvalid) as caught:
        load_config(tmp_path, environ={"REYN_COLOUR": "red"})
    assert [(finding.file, finding.line) for finding in caught.value.findings] == [
        ("REYN_COLOUR", 1),
        ("reyn.local.yaml", 1),
        ("reyn.yaml", 1),
        ("reyn.yaml", 2),
        ("reyn.yaml", 3),
    ]
    assert "did you mean `max_phase_visits`?" in str(caught.value)


def test_a_flag_that_does_not_fit_is_an_error_too(tmp_path: Path):
    with pytest.raises(ConfigInvalid, match="flags"):
        load_config(tmp_path, {"max_phase_visits": "many"}, {})


def test_an_empty_file_is_no_configuration(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("# nothing yet\n")
    assert load_config(tmp_path, environ={}) == Config()


def test_variables_are_read_as_yaml_and_empty_ones_do_not_count(tmp_path: Path):
    config = load_config(
        tmp_path, environ={"REYN_SIZES": "{answer_depth: 9}", "REYN_MAX_PHASE_VISITS": "", "REYN_STRICT": "true"}
    )
    assert (config.sizes.answer_depth, config.max_phase_visits, config.strict) == (9, 25, True)
    with pytest.raises(ConfigInvalid, match="REYN_SIZES:"):
        load_config(tmp_path, environ={"REYN_SIZES": "{"})


def test_a_file_that_leads_nowhere_is_not_taken_for_none(tmp_path: Path):
    (tmp_path / "reyn.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(ConfigInvalid, match="cannot read the file"):
        load_config(tmp_path, environ={})


def findings_of(root: Path) -> list[tuple[int, str]]:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(root, environ={})
    return [(finding.line, finding.message) for finding in caught.value.findings]


def test_what_is_wrong_in_a_section_is_told_line_by_line(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text(
        "limits:\n  tokens: 0\n  token: 3\nsizes: 3\nmodels:\n  far:\n    model: openai:m\n    timeout: soon\n"
        "    mode: best\n  odd: 3\n"
    )
    assert findings_of(tmp_path) == [
        (2, "`tokens`: Expected `int` >= 1"),
        (3, "unknown key `token`"),
        (4, "`sizes` must be a mapping of keys to values"),
        (8, "`timeout`: Expected `int | null`, got `str`"),
        (9, "`mode`: Invalid enum value 'best'"),
        (10, "`odd` must be the name of a model, or its settings"),
    ]


def test_one_place_adjusts_the_model_of_another(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("models:\n  far: {model: openai:m, timeout: 5}\n  near: local\n")
    (tmp_path / "reyn.local.yaml").write_text("models: {far: {retries: 1}}\n")
    assert load_config(tmp_path, environ={}).models["far"] == ModelSettings("openai:m", timeout=5, retries=1)
    (tmp_path / "reyn.local.yaml").write_text("models:\n  far: {retries: 1}\n  near: {retries: 1}\n")
    assert findings_of(tmp_path) == [(3, "`models.near` names no `model`")]


def test_settings_are_those_of_a_models_kind_and_whoever_takes_its_place_is_known(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text(
        "models:\n"
        "  near: {model: local, mode: json_schema}\n"
        "  far:\n    model: openai:m\n    threads: 2\n    fallback: [naer, local, near, 'openai:n']\n"
        "  odd:\n    model: local\n    key: secret://KEY\n"
    )
    assert findings_of(tmp_path) == [
        (2, "`local` knows no mode `json_schema`"),
        (5, "`threads` is for `local` alone"),
        (6, "no model is called `naer`"),
        (9, "`key` is for `openai` alone"),
    ]


def test_variables_of_secrets_are_left_to_secrets(tmp_path: Path):
    assert variable_of("KEY").startswith(SECRETS)
    assert load_config(tmp_path, environ={variable_of("KEY"): "v"}) == Config()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("key", "sk-topsecret"),
        ("key", ""),
        ("key", "secret://topsecret"),
        ("base_url", "http://me:topsecret@127.0.0.1/v1"),
        ("base_url", "http://127.0.0.1/v1?key=topsecret"),
        ("base_url", "127.0.0.1:8000/topsecret"),
        ("base_url", "http://127.0.0.1:65536/topsecret"),
        ("base_url", "http://[::1/topsecret"),
    ],
)
def test_a_value_that_may_be_a_secret_is_refused_and_not_quoted(tmp_path: Path, key: str, value: str):
    (tmp_path / "reyn.yaml").write_text(f"models:\n  far:\n    model: openai:m\n    {key}: '{value}'\n")
    [(line, message)] = findings_of(tmp_path)
    assert (line, message.startswith(f"`{key}` must be the "), "topsecret" in message) == (4, True, False)


@pytest.mark.parametrize("name", ["A", "OPENAI_API_KEY", "A" * 64, "A" * 65, "a", "1A", "A-B", "A\n", ""])
def test_a_key_is_what_secrets_take_for_a_handle(name: str):
    try:
        msgspec.convert({"model": "openai:m", "key": f"secret://{name}"}, ModelSettings)
    except msgspec.ValidationError:
        assert not is_handle(f"secret://{name}")
    else:
        assert is_handle(f"secret://{name}")


def test_a_model_may_become_one_of_another_kind_here(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("models:\n  far: {model: local, threads: 2}\n")
    (tmp_path / "reyn.local.yaml").write_text("models: {far: {model: openai:m, threads: null}}\n")
    assert load_config(tmp_path, environ={}).models["far"] == ModelSettings("openai:m")
