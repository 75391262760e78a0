"""Files that make other programs act. The attacker is a model that may write below `output/`, or in granted folders.

The oracle is a list of names that tools execute or obey where they find them, and the table in the guide.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.permissions.paths import must_spell
from tests.kernel.support import Project
from tests.permissions.test_paths import covers
from tests.support import act, file, finish, write_skill

_ACTING = """
compose.yaml compose.yml compose.override.yaml docker-compose.yml docker-compose.prod.yaml docker-compose-dev.yml
Dockerfile Dockerfile.dev api.Dockerfile Containerfile Containerfile.test Jenkinsfile Jenkinsfile.release Procfile
Procfile.dev azure-pipelines.yml bitbucket-pipelines.yml buildspec.yml cloudbuild.yaml appveyor.yml skaffold.yaml
AGENTS.md agents.md CLAUDE.md CLAUDE.local.md GEMINI.md copilot-instructions.md review.prompt.md x.instructions.md
style.mdc mcp.json .cursorrules .windsurfrules .clinerules .aider.conf.yml .mcp.json
.github .gitlab-ci.yml .circleci .pre-commit-config.yaml .husky .git .gitattributes .gitmodules .gitconfig hooks
.env .envrc .npmrc .yarnrc .yarnrc.yml .pypirc .netrc .bazelrc .devcontainer .vscode .idea .zed .editorconfig .mise.toml
pip.conf pip.ini tox.ini pytest.ini mypy.ini noxfile.py setup.py setup.cfg pyproject.toml conftest.py sitecustomize.py
requirements.txt requirements-dev.txt requirements_test.txt dev-requirements.txt constraints.txt Pipfile Pipfile.lock
Makefile makefile GNUmakefile Makefile.local rules.mk justfile Justfile Taskfile.yml Rakefile Vagrantfile Tiltfile
package.json package-lock.json yarn.lock pnpm-lock.yaml deno.json bunfig.toml vite.config.ts webpack.config.cjs App.tsx
build.gradle build.gradle.kts settings.gradle gradle.properties gradlew pom.xml build.xml build.sbt BUILD.bazel
defs.bzl Cargo.toml build.rs go.mod go.work composer.json Gemfile x.gemspec Podfile Brewfile flake.nix main.tf
CMakeLists.txt tools.cmake meson.build configure SConstruct x.csproj x.sln Snakefile analysis.ipynb tool.wasm
libx.so libx.so.1 x.dylib x.dll x.jar x.whl x.desktop x.service x.socket x.timer x.plist x.code-workspace x.lnk crontab
node_modules site-packages __pycache__ run.command run.bat run.ps1 x.vbs x.hta ansible.cfg alembic.ini lefthook.yml
"""
_HONEST = """
report.md notes.txt data.csv data.json table.xlsx index.html style.css picture.png letter.pdf summary.yaml book.tex
agents-report.md composer.md compose.md build workspace docker.md requirements.md package.md make.md main.c Main.java
main.go lib.rs claude-notes.md skill.md prompt.md config.toml app.ini results.xml feed.rss x.tar.gz
"""
ACTING, HONEST = _ACTING.split(), _HONEST.split()
GUIDE = Path(__file__).parents[2] / "docs/guides/files-and-permissions.md"


def documented() -> list[str]:
    text = GUIDE.read_text().partition("### Protected names")[2].partition("For example")[0]
    return [name for row in re.findall(r"^\|.*\|(.*)\|$", text, re.M) for name in re.findall("`([^`]+)`", row)]


@given(st.sampled_from(ACTING), st.sampled_from([str, str.upper, str.lower, str.title]), st.integers(1, 3))
def test_no_grant_of_a_folder_covers_a_name_that_acts(name: str, case: object, depth: int):
    spelled = case(name)
    path = "/".join(["tools", *["sub"] * (depth - 1), spelled])
    for pattern in ("tools/", "tools/**", "**", "./", "tools/*", "tools/?*", "tools/**/?*"):
        assert not covers(pattern, path), pattern


@pytest.mark.parametrize("name", ACTING)
def test_a_name_that_acts_is_protected(name: str):
    assert must_spell(name, 1, "write")


@pytest.mark.parametrize("name", HONEST)
def test_the_name_of_a_document_is_not_protected(name: str):
    assert not must_spell(name, 1, "write")


def test_the_table_of_the_guide_holds():
    names = documented()
    assert len(names) > 60
    assert [name for name in names if not must_spell(name.rstrip("/"), 0, "write")] == []


@pytest.mark.parametrize("name", ["compose.yaml", "AGENTS.md", "build.rs", "pytest.ini", "App.tsx", "Dockerfile.dev"])
def test_a_run_cannot_write_it_without_a_grant_that_spells_it(tmp_path: Path, name: str):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    project = Project(tmp_path)
    project.run("s", [act(file("write", f"output/{name}", content="x")), finish()])
    assert project.events("permission_denied")
    assert not (tmp_path / "output" / name).exists()
