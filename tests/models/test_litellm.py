"""What only the `litellm` adapter does: import without a connection, servers and credentials."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reyn.config import ModelSettings
from reyn.config.load import load_config
from reyn.errors import ConfigInvalid
from reyn.models.catalog import remote_class
from reyn.secrets import Secrets
from tests.models.dialects import require

IMPORT = """
import socket, sys
opened = []
def refuse(*args, **kwargs):
    opened.append(args)
    raise OSError("refused")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from reyn.models.litellm import LiteLLMModel
sdk = LiteLLMModel.import_sdk()
print(len(opened), sdk.__name__, __import__("os").environ.get("PLANTED"))
"""


def test_importing_litellm_opens_no_connection_and_reads_no_env_file(tmp_path: Path):
    require("litellm")
    (tmp_path / ".env").write_text("PLANTED=yes\n")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert done.stdout.split() == ["0", "litellm", "None"]


def test_a_key_needs_a_server_that_may_have_it(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("models: {far: {model: 'litellm:mistral/m', key: 'secret://MISTRAL_KEY'}}\n")
    with pytest.raises(ConfigInvalid) as caught:
        load_config(tmp_path)
    assert "a `litellm` model with a `key` needs a `base_url`" in str(caught.value.findings[0])


@pytest.mark.filterwarnings("ignore")
def test_without_a_server_the_environment_decides(tmp_path: Path):
    require("litellm")
    model = remote_class("litellm")("far", "bedrock/m", ModelSettings("litellm:bedrock/m"), lambda: Secrets([]))
    model.check_key()
    assert model.describe()["base_url"] == "chosen by LiteLLM"
    assert "api_base" not in model._new_client()
