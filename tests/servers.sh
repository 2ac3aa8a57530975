#!/bin/sh
# Test servers, curl and strace, from the system's package manager. Asks for nothing; says what to do where it may not install.
set -eu
missing() {
  for program in prometheus promtool prometheus-alertmanager amtool redis-server nginx curl strace; do
    command -v "$program" >/dev/null || return 0
  done
  return 1
}
missing || exit 0
[ "$(id -u)" = 0 ] && sudo= || sudo='sudo -n'
if ! command -v apt-get >/dev/null; then
  echo "Prometheus, Alertmanager, Redis, nginx, curl or strace is missing: install them with your package manager, then run make test again" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# Only their files: a test that needs a server starts one of its own, on a port of its own.
$sudo apt-get install -y -qq --no-install-recommends -o DPkg::Options::=--force-confold \
  prometheus prometheus-alertmanager redis-server nginx-light curl strace >/dev/null
