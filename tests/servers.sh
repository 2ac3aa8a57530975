#!/bin/sh
# Test servers from the system's package manager. Asks for nothing; says what to do where it may not install.
set -eu
command -v promtool >/dev/null && command -v redis-server >/dev/null && exit 0
[ "$(id -u)" = 0 ] && sudo= || sudo='sudo -n'
if ! command -v apt-get >/dev/null; then
  echo "promtool or redis-server is missing: install Prometheus and Redis with your package manager, then run make test again" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# Only its files: a test that needs a server starts one of its own, on a port of its own.
$sudo apt-get install -y -qq --no-install-recommends -o DPkg::Options::=--force-confold prometheus redis-server >/dev/null
