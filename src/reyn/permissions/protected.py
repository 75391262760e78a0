"""Names of files that other programs execute, or read as instructions, because of their name or place.

A hidden name (`.env`, `.github`, `.vscode`) is protected by its dot and is not listed here.
"""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SUFFIXES = _words("""
    .appimage .applescript .bash .bat .cjs .class .cmd .coffee .com .command .cron .csh .cts .dll .dylib .egg
    .el .elc .ex .exe .exs .fish .groovy .hta .ipynb .jar .jl .js .jse .jsx .ksh .kts .lnk .lua .mjs .msi .mts
    .nu .phar .php .php5 .phtml .pl .pm .ps1 .psm1 .pth .py .pyc .pyd .pyi .pyo .pyw .pyx .pyz .r .rb .reg .run
    .scpt .scr .sh .so .tcl .ts .tsx .vbe .vbs .vim .war .wasm .whl .wsf .zsh
""")
"""Scripts, modules and programs."""
_BUILD_SUFFIXES = _words("""
    .bazel .bzl .cabal .cmake .csproj .fsproj .gemspec .gradle .mak .make .mk .ninja .nix .nuspec .podspec
    .props .sbt .sln .star .targets .tf .tofu .vbproj .vcxproj .xcconfig
""")
"""Build and infrastructure files."""
_SYSTEM_SUFFIXES = _words("""
    .automount .code-workspace .crontab .desktop .mdc .mount .plist .service .socket .sublime-project .timer
""")
"""Units and entries that a desktop, an init system or an editor executes."""
EXECUTED_NAMES = _words("""
    appfile berksfile brewfile build.gradle build.rs build.sbt build.xml capfile cartfile cmakelists.txt
    configure configure.ac configure.in crontab dangerfile default.nix dune-project earthfile fastfile gemfile
    gnumakefile go.mod go.work gradlew guardfile jakefile justfile makefile matchfile meson.build
    meson_options.txt module.bazel mvnw nextflow.config pipfile podfile pom.xml puppetfile rakefile rebar.config
    sconscript sconstruct setup.cfg settings.gradle snakefile stack.yaml steepfile taskfile.yaml taskfile.yml
    thorfile tiltfile vagrantfile wscript xmake.lua

    angular.json babel.config.json bower.json bun.lock bunfig.toml cargo.lock cargo.toml composer.json
    composer.lock conanfile.txt deno.json deno.jsonc deno.lock devbox.json environment.yml environment.yaml
    gemfile.lock go.sum gradle.properties lerna.json mise.toml npm-shrinkwrap.json nuget.config nx.json
    package-lock.json package.json pdm.lock pdm.toml pipfile.lock pixi.toml pnpm-lock.yaml pnpm-workspace.yaml
    poetry.lock poetry.toml pylock.toml pyproject.toml rush.json turbo.json uv.lock uv.toml vcpkg.json yarn.lock

    appveyor.yml azure-pipelines.yml azure-pipelines.yaml bitbucket-pipelines.yml buildspec.yml buildspec.yaml
    chart.yaml cloudbuild.yaml cloudbuild.json codefresh.yml codemagic.yaml devcontainer.json devfile.yaml
    fly.toml helmfile.yaml kustomization.yaml kustomization.yml lefthook.yml lefthook.yaml netlify.toml procfile
    pulumi.yaml render.yaml renovate.json samconfig.toml serverless.yml serverless.yaml skaffold.yaml
    vercel.json wercker.yml wrangler.toml

    alembic.ini ansible.cfg mypy.ini noxfile pip.conf pip.ini pylintrc pytest.ini ruff.toml supervisord.conf
    tox.ini uwsgi.ini

    agent.md agents.md agents.override.md claude.local.md claude.md copilot-instructions.md gemini.md mcp.json
    qwen.md warp.md

    __pycache__ hooks node_modules site-packages sitecustomize usercustomize
""")
"""Build files; lists of packages to install; pipelines and deployments; settings of tools that load code; instructions
to agents; folders whose files are executed or imported."""
EXECUTED_FAMILIES = re.compile(
    r"(docker-)?compose([.-].+)?\.ya?ml"
    r"|(dockerfile|containerfile|jenkinsfile|makefile|procfile|vagrantfile)([.-].+)?"
    r"|.+\.(dockerfile|containerfile|jenkinsfile|makefile)"
    r"|(requirements|constraints)([._-].*)?\.(txt|in)"
    r"|.+[._-]requirements\.(txt|in)"
    r"|.+\.(agent|chatmode|instructions|prompt)\.md"
    r"|lib.+\.(so|dylib)(\.\d+)+"
)
"""Names with variants: `compose.override.yaml`, `Dockerfile.dev`, `requirements-dev.txt`, `review.prompt.md`."""
EXECUTED_SUFFIXES = _SUFFIXES | _BUILD_SUFFIXES | _SYSTEM_SUFFIXES
