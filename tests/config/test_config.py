from pathlib import Path
from typing import Any

import msgspec
import pytest

from reyn.config import Config, ModelSettings
from reyn.config.load import load_config
from reyn.errors import ConfigInvalid
from reyn.secrets import is_handle
from reyn.secrets.stores import SECRET_PREFIX, variable_of


def errors_in(root: Path, flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(root, flags, environ or {})
    return str(caught.value)


def findings_in(root: Path) -> list[tuple[int, str]]:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(root, environ={})
    return [(finding.line, finding.message) for finding in caught.value.findings]


def test_every_key_has_a_default(tmp_path: Path):
    assert load_config(tmp_path, environ={}) == Config()


def test_later_sources_override_earlier_ones(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("max_phase_visits: 3\nmax_phase_retries: 1\nsizes: {answer_depth: 9}\n")
    (tmp_path / "reyn.local.yaml").write_text("max_phase_visits: null\nsizes: {answer_bytes: 7}\n")
    config = load_config(tmp_path, {"strict": True}, {"REYN_MAX_PHASE_RETRIES": "5", "REYN_MODEL": "m"})
    assert (config.max_phase_visits, config.max_phase_retries, config.strict, config.model) == (None, 5, True, "m")
    assert (config.sizes.answer_depth, config.sizes.answer_bytes) == (9, 7)


def test_errors_of_all_sources_are_reported_at_once(tmp_path: Path):
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


def test_a_key_in_the_wrong_section_is_sent_to_the_top_level(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("limits: {max_phase_visits: 9}\n")
    with pytest.raises(ConfigInvalid, match="move it out of `limits`"):
        load_config(tmp_path, environ={})


def test_an_empty_file_sets_nothing(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("# nothing yet\n")
    assert load_config(tmp_path, environ={}) == Config()


def test_variables_hold_yaml_and_empty_ones_are_ignored(tmp_path: Path):
    config = load_config(
        tmp_path, environ={"REYN_SIZES": "{answer_depth: 9}", "REYN_MAX_PHASE_VISITS": "", "REYN_STRICT": "true"}
    )
    assert (config.sizes.answer_depth, config.max_phase_visits, config.strict) == (9, 25, True)
    assert "REYN_SIZES:" in errors_in(tmp_path, environ={"REYN_SIZES": "{"})


def test_a_dangling_link_is_an_error(tmp_path: Path):
    (tmp_path / "reyn.yaml").symlink_to(tmp_path / "gone.yaml")
    assert "cannot read the file" in errors_in(tmp_path)


def test_type_errors_name_the_key_path_the_expected_type_and_the_value(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text(
        "limits:\n  tokens: 0\n  token: 3\nsizes: 3\nmodels:\n  far:\n    model: openai:m\n    timeout: soon\n"
        "    mode: best\n    temperature: 3\n    fallback: [near, 5]\n  odd: 3\n"
        "strict: [yes]\nmax_phase_retries: null\n"
    )
    assert findings_in(tmp_path) == [
        (2, "`limits.tokens` must be an integer greater than 0 or `null`, not 0"),
        (3, "unknown key `limits.token`"),
        (4, "`sizes` must be a mapping of keys to values, not 3"),
        (8, "`models.far.timeout` must be an integer greater than 0 or `null`, not 'soon'"),
        (9, "`models.far.mode` must be `auto`, `grammar`, `json_schema`, `json_object` or `free`, not 'best'"),
        (10, "`models.far.temperature` must be a number from 0 to 2 or `null`, not 3"),
        (11, "`models.far.fallback[1]` must be a string, not 5"),
        (12, "`models.odd` must be the name of a model or a mapping of its settings, not 3"),
        (13, "`strict` must be `true` or `false`, not a list"),
        (14, "`max_phase_retries` must be an integer of at least 0, not null"),
    ]


@pytest.mark.parametrize(
    ("source", "flags", "environ"),
    [
        ("flags", {"max_phase_visits": "many"}, {}),
        ("REYN_MAX_PHASE_VISITS", {}, {"REYN_MAX_PHASE_VISITS": "many"}),
        ("reyn.yaml", {}, {}),
    ],
)
def test_type_errors_of_every_source_are_free_of_library_messages(
    tmp_path: Path, source: str, flags: dict[str, Any], environ: dict[str, str]
):
    if source == "reyn.yaml":
        (tmp_path / "reyn.yaml").write_text("max_phase_visits: many\n")
    message = errors_in(tmp_path, flags, environ)
    assert f"{source}:1:1" in message
    assert "`max_phase_visits` must be an integer greater than 0 or `null`, not 'many'" in message
    assert "Expected" not in message
    assert "$" not in message


def test_a_long_value_is_abbreviated(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text(f"strict: {'x' * 200}\n")
    [(_, message)] = findings_in(tmp_path)
    assert len(message) < 100


def test_a_source_can_change_single_settings_of_a_model(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("models:\n  far: {model: openai:m, timeout: 5}\n  near: local\n")
    (tmp_path / "reyn.local.yaml").write_text("models: {far: {retries: 1}}\n")
    assert load_config(tmp_path, environ={}).models["far"] == ModelSettings("openai:m", timeout=5, retries=1)
    (tmp_path / "reyn.local.yaml").write_text("models:\n  far: {retries: 1}\n  near: {retries: 1}\n")
    assert findings_in(tmp_path) == [(3, "`models.near` has no `model`")]


def test_settings_must_fit_the_adapter_and_fallbacks_must_exist(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text(
        "models:\n"
        "  near: {model: local, mode: json_schema}\n"
        "  far:\n    model: openai:m\n    threads: 2\n    fallback: [naer, local, near, 'openai:n']\n"
        "  odd:\n    model: local\n    key: secret://KEY\n"
    )
    assert findings_in(tmp_path) == [
        (2, "`local` models have no mode `json_schema`"),
        (5, "`models.far.threads` does not apply to `openai` models"),
        (6, "`models.far.fallback` names an unknown model `naer`"),
        (9, "`models.odd.key` does not apply to `local` models"),
    ]


def test_variables_of_secrets_are_not_configuration(tmp_path: Path):
    assert variable_of("KEY").startswith(SECRET_PREFIX)
    assert load_config(tmp_path, environ={variable_of("KEY"): "v"}) == Config()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("key", "sk-topsecret"),
        ("key", ""),
        ("key", "secret://topsecret"),
        ("key", "env://top-secret"),
        ("key", "env://"),
        ("base_url", "http://me:topsecret@127.0.0.1/v1"),
        ("base_url", "http://127.0.0.1/v1?key=topsecret"),
        ("base_url", "127.0.0.1:8000/topsecret"),
        ("base_url", "http://127.0.0.1:65536/topsecret"),
        ("base_url", "http://[::1/topsecret"),
    ],
)
def test_a_rejected_value_that_may_contain_a_secret_is_not_quoted(tmp_path: Path, key: str, value: str):
    (tmp_path / "reyn.yaml").write_text(f"models:\n  far:\n    model: openai:m\n    {key}: '{value}'\n")
    [(line, message)] = findings_in(tmp_path)
    assert (line, message.startswith(f"`models.far.{key}` must be ")) == (4, True)
    assert "topsecret" not in message
    assert "top-secret" not in message


@pytest.mark.parametrize("scheme", ["secret", "env"])
@pytest.mark.parametrize("name", ["A", "OPENAI_API_KEY", "A" * 64, "A" * 65, "a", "_a", "1A", "A-B", "A\n", "", "Ä"])
def test_configuration_and_secrets_agree_on_handles(scheme: str, name: str):
    handle = f"{scheme}://{name}"
    try:
        msgspec.convert({"model": "openai:m", "key": handle}, ModelSettings)
    except msgspec.ValidationError:
        assert not is_handle(handle)
    else:
        assert is_handle(handle)


def test_a_local_file_can_change_the_adapter_of_a_model(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("models:\n  far: {model: local, threads: 2}\n")
    (tmp_path / "reyn.local.yaml").write_text("models: {far: {model: openai:m, threads: null}}\n")
    assert load_config(tmp_path, environ={}).models["far"] == ModelSettings("openai:m")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budgets: {run: {tokens: 0}}", "`budgets.run.tokens` must be an integer greater than 0 or `null`, not 0"),
        ("budgets: {day: {cost: -1}}", "`budgets.day.cost` must be a number from 0 to 9000000 or `null`, not -1"),
        ("budgets: {skill: {a: {run: {cents: 5}}}}", "unknown key `budgets.skill.a.run.cents`"),
        ("budgets: {currencies: {euro: 1.1}}", "a key of `budgets.currencies` must be the three letters of a "),
        ("budgets: {currencies: {USD: 1}}", "`budgets.currencies` has a value for USD, which is the currency of the b"),
        ("budgets: {timezone: Mars/Base}", "there is no time zone `Mars/Base` on this machine"),
        ("models: {a: {model: local, price: {input: 1}}}", "`models.a.price` has no `output`"),
        (
            "models: {a: {model: local, price: {input: 1, output: 1, currency: EUR}}}",
            "`models.a.price` is in EUR, which is not declared",
        ),
        ("mcp: {servers: {Big Name: {command: [x]}}}", "a key of `mcp.servers` must be lower-case letters"),
    ],
)
def test_budgets_prices_and_chosen_keys_are_checked_with_their_position(tmp_path: Path, text: str, message: str):
    (tmp_path / "reyn.yaml").write_text(text)
    [(line, found)] = findings_in(tmp_path)
    assert line == 1
    assert found.startswith(message)


def test_a_price_in_a_declared_currency_is_accepted(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text(
        "budgets: {currencies: {EUR: 1.1}}\nmodels: {a: {model: local, price: {input: 1, output: 0, currency: EUR}}}\n"
    )
    assert load_config(tmp_path, environ={}).budgets.currencies == {"EUR": 1.1}


def test_an_invalid_key_of_a_mapping_is_reported_where_it_is_written(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("mcp:\n  servers:\n    My Server: {command: [x]}\n")
    with pytest.raises(ConfigInvalid) as caught:
        load_config(tmp_path)
    [finding] = caught.value.findings
    assert (finding.line, "a key of `mcp.servers` must be lower-case letters" in finding.message) == (3, True)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (
            "{command: [x], url: http://x}",
            "reyn.yaml:1:17: RYN701 `mcp.servers.a`: an MCP server has either `command` or",
        ),
        ("{}", "reyn.yaml:1:17: RYN701 `mcp.servers.a`: an MCP server has either `command` or `url`"),
        ("{url: ftp://x}", "reyn.yaml:1:21: RYN701 `mcp.servers.a.url` must be the URL of a server"),
    ],
)
def test_keys_that_exclude_each_other_are_reported_with_their_position(tmp_path: Path, server: str, message: str):
    (tmp_path / "reyn.yaml").write_text(f"mcp: {{servers: {{a: {server}}}}}\n")
    with pytest.raises(ConfigInvalid) as caught:
        load_config(tmp_path, environ={})
    assert message in caught.value.message


def test_a_source_can_change_one_setting_of_a_server(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("mcp: {servers: {a: {command: [x]}}}\n")
    (tmp_path / "reyn.local.yaml").write_text("mcp: {servers: {a: {timeout: 5}}}\n")
    assert load_config(tmp_path, environ={}).mcp.servers["a"].timeout == 5
