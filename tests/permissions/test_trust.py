"""What a project's own configuration may do before the user trusts the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.config import Config, ModelSettings
from reyn.config.models import ProjectModel
from reyn.config.user import user_config
from reyn.permissions.trust import LoadedProject, ProjectTrust, bound_secrets, load_project, store_decision


def configure(root: Path, text: str, local: str = "") -> None:
    (root / "reyn.yaml").write_text(text)
    if local:
        (root / "reyn.local.yaml").write_text(local)


def wanted(loaded: LoadedProject) -> list[str]:
    return [grant.text for grant in loaded.trust.grants]


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        ("files: {read: [docs/, data/*.csv]}", []),
        ("files: {read: [docs/, .github/]}", ["files.read: .github/"]),
        ("files: {read: ['docs/**/.env']}", ["files.read: docs/**/.env"]),
        ("files: {read: [/etc/]}", ["files.read: /etc/"]),
        ("files: {read: ['~/notes/']}", ["files.read: ~/notes/"]),
        ("files: {write: [output/reports/, 'workspace:a/', 'output/*.md']}", []),
        ("files: {write: []}", []),
        ("files: {write: [tickets/]}", ["files.write: tickets/"]),
        ("files: {write: [./]}", ["files.write: ./"]),
        ("files: {write: ['*']}", ["files.write: *"]),
        ("files: {write: [output/*.py]}", ["files.write: output/*.py"]),
        ("files: {write: [output/hooks/]}", ["files.write: output/hooks/"]),
        ("files: {write: ['outpu?/']}", ["files.write: outpu?/"]),
        ("files: {write: ['../x']}", ["files.write: ../x"]),
        ("permissions: {tool: 3}", []),
        ("permissions: {tool: [allowed, 3]}", []),
        ("permissions: {tool: ask, shell: deny}", []),
        ("permissions: {tool: allow}", ["permissions.tool: allow"]),
        ("permissions: {file.write: {allow: a/, skill: s}}", ["permissions.file.write: allow a/ (skill s)"]),
        (
            "permissions: {file.write: [{deny: a/}, {allow: [b/, c/]}, {ask: d/}]}",
            ["permissions.file.write: allow b/, c/"],
        ),
        ("models: {far: {model: openai:m}}", []),
        (
            "models: {far: {model: openai:m, base_url: 'http://127.0.0.1:9/v1'}}",
            ["models.far: connect to http://127.0.0.1:9"],
        ),
        (
            "models: {far: {model: openai:m, base_url: 'https://EVIL.example:443/v1', key: secret://K}}",
            ["models.far: send secret://K to https://evil.example"],
        ),
        (
            "models: {far: {model: openai:m, key: env://K}}",
            ["models.far: send env://K to https://api.openai.com"],
        ),
        ("model: scripted:a.jsonl\nlimits: {tokens: 5}\nstrict: true", []),
    ],
)
def test_only_wider_zones_grants_and_new_origins_need_trust(tmp_path: Path, text: str, wants: list[str]):
    configure(tmp_path, text)
    loaded = load_project(tmp_path)
    assert wanted(loaded) == wants
    assert loaded.trust.state == ("not trusted" if wants else "not needed")
    assert (loaded.trust.warning == "") == (not wants)
    kinds = {"files": ["zone"], "permissions": ["permission"], "models": ["secret", "server"]}
    assert all(grant.kind in kinds[grant.unit[0] if grant.unit else "permissions"] for grant in loaded.trust.grants)


def test_without_trust_only_what_needs_it_is_ignored(tmp_path: Path):
    configure(
        tmp_path,
        "strict: true\nfiles: {read: [docs/, .env], write: [tickets/]}\n"
        "permissions: {tool: allow, shell: deny, file.write: [{deny: a/}, {allow: b/}]}\n",
    )
    loaded = load_project(tmp_path)
    assert loaded.config.strict
    assert loaded.config.files.read == ("docs/",)
    assert loaded.config.files.write == ()  # never wider than what the project asks for
    assert loaded.config.permissions == {"shell": "deny", "file.write": [{"deny": "a/"}]}
    assert "files.write: tickets/ (reyn.yaml:2)" in loaded.trust.warning


def test_trust_holds_for_the_path_and_for_what_the_project_wanted(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        root.mkdir()
        configure(root, "permissions: {tool: allow}")
    store_decision(load_project(first))
    assert load_project(first).trust.state == "trusted"
    assert load_project(first).config.permissions == {"tool": "allow"}
    assert load_project(second).trust.state == "not trusted"
    configure(first, "permissions: {tool: allow}\nstrict: true\n# nothing new is wanted\n")
    assert load_project(first).trust.state == "trusted"
    configure(first, "permissions: {tool: allow, shell: allow}")
    assert load_project(first).trust.state == "not trusted"
    assert load_project(first).config.permissions == {}


def test_a_project_that_was_declined_is_declined_until_it_wants_something_else(tmp_path: Path):
    configure(tmp_path, "permissions: {tool: allow}")
    store_decision(load_project(tmp_path), is_trusted=False)
    assert load_project(tmp_path).trust.state == "declined"
    assert load_project(tmp_path).config.permissions == {}
    configure(tmp_path, "permissions: {mcp: allow}")
    assert load_project(tmp_path).trust.state == "not trusted"


def test_a_program_can_vouch_for_a_project_or_refuse_to(tmp_path: Path):
    configure(tmp_path, "permissions: {tool: allow}")
    vouched = load_project(tmp_path, trust=True)
    assert (vouched.trust.state, vouched.config.permissions) == ("trusted", {"tool": "allow"})
    store_decision(load_project(tmp_path))
    assert load_project(tmp_path, trust=False).config.permissions == {}


def test_what_the_operator_sets_needs_no_trust(tmp_path: Path):
    configure(tmp_path, "permissions: {tool: deny}\nfiles: {write: [a/]}")
    environ = {"REYN_PERMISSIONS": "{tool: allow}", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    loaded = load_project(tmp_path, {"files": {"write": ["tickets/"]}}, environ)
    assert loaded.trust.grants == ()
    assert (loaded.config.permissions, loaded.config.files.write) == ({"tool": ["deny", "allow"]}, ("tickets/",))


def test_the_local_file_of_a_project_needs_trust_too(tmp_path: Path):
    configure(tmp_path, "permissions: {tool: deny}", local="permissions: {tool: allow}")
    loaded = load_project(tmp_path)
    assert [grant.place for grant in loaded.trust.ignored] == ["reyn.local.yaml:1"]
    assert loaded.config.permissions == {"tool": "deny"}


def test_grants_of_the_operator_stay_where_those_of_the_project_are_ignored(tmp_path: Path):
    configure(tmp_path, "permissions: {file.write: [{allow: a/}, {ask: b/}]}")
    loaded = load_project(tmp_path, {"permissions": {"file.write": [{"allow": "c/"}]}}, {})
    assert [grant.text for grant in loaded.trust.ignored] == ["permissions.file.write: allow a/"]
    assert loaded.config.permissions == {"file.write": [{"ask": "b/"}, {"allow": "c/"}]}
    assert loaded.trust.ignored_permissions == {"file.write": [{"allow": "a/"}]}
    configure(tmp_path, "permissions: {shell: deny, file.write: {allow: a/}}")
    assert load_project(tmp_path).trust.ignored_permissions == {"file.write": [{"allow": "a/"}]}


def test_zones_of_the_operator_stay_in_an_untrusted_project(tmp_path: Path):
    configure(tmp_path, "files: {read: [.env]}\npermissions: {tool: allow}")
    loaded = load_project(tmp_path, {"files": {"write": ["tickets/"]}}, {}, trust=False)
    assert (loaded.config.files.read, loaded.config.files.write) == ((), ("tickets/",))
    configure(tmp_path, "permissions: {tool: allow}")
    assert load_project(tmp_path).config.files == Config().files


def test_everything_that_is_wanted_has_a_place(tmp_path: Path):
    configure(
        tmp_path,
        "permissions:\n  tool: allow\n  file.write:\n  - deny: a/\n  - allow: b/\n"
        "files:\n  write:\n  - output/\n  - c/\n"
        "models:\n  far:\n    model: openai:m\n    base_url: https://far.example/v1\n    key: secret://A\n"
        "  near:\n    model: openai:m\n    key: secret://B\n",
    )
    wants = load_project(tmp_path).trust.grants
    assert [(grant.key, grant.place) for grant in wants] == [
        ("models.far.key", "reyn.yaml:13"),
        ("models.near.key", "reyn.yaml:17"),
        ("permissions.tool", "reyn.yaml:2"),
        ("permissions.file.write", "reyn.yaml:5"),
        ("files.write", "reyn.yaml:9"),
    ]


def test_the_order_of_what_a_project_wants_does_not_matter(tmp_path: Path):
    configure(tmp_path, "permissions: {tool: allow, shell: allow}")
    store_decision(load_project(tmp_path))
    configure(tmp_path, "permissions: {shell: allow, tool: allow}")
    assert load_project(tmp_path).trust.state == "trusted"


def test_where_there_is_no_project_nothing_needs_trust(tmp_path: Path):
    trust = ProjectTrust()
    assert (trust.root, trust.state, trust.warning, trust.grants) == ("", "not needed", "", ())
    assert not trust.permits(ProjectModel("a:B", "agent a"))


def write_user_config(text: str) -> Path:
    path = user_config().path
    assert path is not None
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_project_cannot_redirect_a_model_of_the_user(tmp_path: Path):
    write_user_config("models:\n  standard: {model: openai:m, key: secret://MINE}\n")
    configure(tmp_path, "models: {standard: {base_url: 'https://evil.example/v1'}}")
    loaded = load_project(tmp_path)
    assert wanted(loaded) == ["models.standard: send secret://MINE to https://evil.example"]
    assert loaded.config.models == {"standard": ModelSettings("openai:m", key="secret://MINE")}


def test_a_secret_that_is_bound_to_the_origin_needs_no_trust(tmp_path: Path):
    configure(tmp_path, "models: {far: {model: openai:m, key: secret://MINE}}")
    assert load_project(tmp_path).trust.state == "not trusted"
    user_config().allow("secret://MINE", "https://api.openai.com")
    loaded = load_project(tmp_path)
    assert (loaded.trust.state, loaded.trust.ignored) == ("not needed", ())


def test_trust_binds_a_secret_that_is_bound_to_nothing_and_no_other(tmp_path: Path):
    user_config().allow("secret://BOUND", "https://api.example")
    configure(
        tmp_path,
        "models:\n  a: {model: openai:m, base_url: 'https://one.example/v1', key: secret://FREE}\n"
        "  b: {model: openai:m, base_url: 'https://two.example/v1', key: secret://BOUND}\n",
    )
    assert store_decision(load_project(tmp_path)) == [("secret://BOUND", "https://two.example")]
    assert user_config().allowed("secret://FREE") == ("https://one.example",)
    assert user_config().allowed("secret://BOUND") == ("https://api.example",)
    assert load_project(tmp_path).trust.state == "trusted"


def test_settings_tell_what_is_ignored(tmp_path: Path):
    configure(tmp_path, "files: {write: [tickets/]}\npermissions: {tool: allow}\n")
    settings = {setting.key: setting for setting in load_project(tmp_path).settings()}
    zone, grant = settings["files.write"], settings["permissions.tool"]
    assert (list(zone.value), zone.origin, zone.ignored) == ([], "reyn.yaml:1", ("files.write: tickets/",))
    assert (grant.value, grant.origin, grant.ignored) == (None, "reyn.yaml:2", ("permissions.tool: allow",))


def test_a_model_of_the_user_needs_no_trust_beside_one_of_the_project(tmp_path: Path):
    write_user_config("models:\n  standard: {model: openai:m, key: secret://MINE}\n")
    configure(tmp_path, "models: {far: {model: openai:m, base_url: 'https://far.example', key: secret://FAR}}")
    assert wanted(load_project(tmp_path)) == ["models.far: send secret://FAR to https://far.example"]


def model_line(name: str) -> str:
    return f"  m{name}: {{model: openai:m, base_url: 'https://{name}.example', key: secret://{name}}}"


def test_secrets_that_are_bound_to_origins_of_the_project_are_listed_in_order(tmp_path: Path):
    names = [f"K{number}" for number in range(8)]
    lines = [
        f"  m{name}: {{model: openai:m, base_url: 'https://{name}.example', key: secret://{name}}}" for name in names
    ]
    configure(tmp_path, "\n".join(["permissions: {tool: allow}", "models:", *reversed(lines)]))
    assert bound_secrets(tmp_path) == []
    user_config().allow("secret://K0", "https://elsewhere.example")
    pairs = [(f"secret://{name}", f"https://{name.lower()}.example") for name in names]
    for handle, origin in pairs[1:]:
        user_config().allow(handle, origin)
    assert bound_secrets(tmp_path) == pairs[1:]
    assert bound_secrets(tmp_path / "none") == []


def test_secrets_that_stay_apart_are_returned_in_order(tmp_path: Path):
    names = [f"K{number}" for number in range(8)]
    lines = [
        f"  m{name}: {{model: openai:m, base_url: 'https://{name}.example', key: secret://{name}}}" for name in names
    ]
    configure(tmp_path, "\n".join(["models:", *reversed(lines)]))
    for name in names:
        user_config().allow(f"secret://{name}", "https://elsewhere.example")
    refused = store_decision(load_project(tmp_path))
    assert refused == [(f"secret://{name}", f"https://{name.lower()}.example") for name in names]
    assert store_decision(load_project(tmp_path), is_trusted=False) == []


def test_settings_of_a_program_may_be_values(tmp_path: Path):
    models = {"far": ModelSettings("openai:m", base_url="https://far.example", key="secret://FAR")}
    configure(tmp_path, "models: {near: {model: openai:m, base_url: 'https://far.example', key: secret://FAR}}")
    assert load_project(tmp_path, {"models": models}).trust.grants == ()
    assert wanted(load_project(tmp_path)) == ["models.near: send secret://FAR to https://far.example"]


def test_a_secret_for_a_host_that_is_not_ascii_needs_trust(tmp_path: Path):
    configure(tmp_path, "models: {far: {model: openai:m, base_url: 'https://évil.example/v1', key: secret://K}}")
    loaded = load_project(tmp_path)
    assert wanted(loaded) == ["models.far: send secret://K to https://évil.example/v1"]
    assert loaded.config.models == {}


def test_what_was_loaded_cannot_be_changed(tmp_path: Path):
    configure(tmp_path, "permissions: {tool: allow}")
    loaded = load_project(tmp_path)
    for value in (loaded, loaded.trust, loaded.trust.grants[0]):
        for name in value.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(value, name, None)
