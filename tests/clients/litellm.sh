#!/bin/sh
# Lets the real LiteLLM search a real service: its vector store search, and `file_search` of its responses API.
# LiteLLM has an environment of its own, because it needs an older openai than the tests do. Its responses API imports mcp.
# usage: tests/clients/litellm.sh PYTHON, whose environment has taugate and what its tests need
set -eu
cd "$(dirname "$0")/../.."
python=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check litellm==1.106.2 mcp==2.3.0
"$python" -m tests.clients.litellm_service "$folder/venv/bin/python"
