from pathlib import Path

import pytest

from reyn.config import Config, load_config
from reyn.errors import ConfigInvalid


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
    assert "Did you mean `max_phase_visits`?" in str(caught.value)


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
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        load_config(tmp_path, environ={})
