#!/bin/sh
# Generates a client from docs/openapi.json and checks it with mypy --strict: others build clients this way, in many languages.
# The environment is of its own, because openapi-python-client needs an older typer than huggingface-hub does.
# usage: tests/clients/generated_client.sh PYTHON
set -eu
cd "$(dirname "$0")/../.."
python=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
PATH="$folder/venv/bin:$PATH"
pip install --quiet --disable-pip-version-check openapi-python-client==0.29.1 httpx==0.28.1 mypy==2.4.1
openapi-python-client generate --path docs/openapi.json --meta none --output-path "$folder/generated"
# Not ours: the generator's template of client.py hands `*args: object` on to __exit__.
printf '[mypy]\nstrict = true\n[mypy-generated.client]\ndisable_error_code = arg-type\n' >"$folder/mypy.ini"
cd "$folder"
mypy --config-file mypy.ini generated
