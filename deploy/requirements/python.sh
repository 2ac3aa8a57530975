#!/bin/sh
# Check that a Python can run Taugate and create virtual environments: `sh deploy/requirements/python.sh PYTHON`. If not, it
# prints what is missing and how to install it, and exits with status 1.
set -eu
python=$1
fail() {
  echo "$1" >&2
  exit 1
}

if ! command -v "$python" >/dev/null; then
  fail "$python: command not found: install Python 3.11 or newer (Debian, Ubuntu: apt-get install python3 python3-venv), or name one: make PYTHON=/path/to/python …"
fi
version=$("$python" -c 'import platform; print(platform.python_version())') || fail "$python: does not run; see above"
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11) or sys.version_info[:3] == (3, 14, 1))'; then
  fail "$python is Python $version: Taugate needs 3.11 or newer, and not 3.14.1; install another, and name it: make PYTHON=/path/to/python …"
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  fail "$python (Python $version) cannot create virtual environments: install the package python3-venv (Debian, Ubuntu: apt-get install python3-venv), then run make again"
fi
