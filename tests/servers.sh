#!/bin/sh
# Install the programs that some tests start, with the system's package manager; it never asks a question.
set -eu
missing() {
  for program in prometheus promtool prometheus-alertmanager amtool redis-server nginx curl strace soffice; do
    command -v "$program" >/dev/null || return 0
  done
  for program in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$program" >/dev/null && return 1
  done
  return 0
}
PATH=$PATH:/usr/sbin
missing || exit 0
[ "$(id -u)" = 0 ] && sudo= || sudo='sudo -n'
if ! command -v apt-get >/dev/null; then
  echo "install Prometheus, Alertmanager, Redis, nginx, curl, strace, LibreOffice and Chromium with your package manager" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# Each test starts its own server on a free port, so services of the system may run or not.
$sudo apt-get install -y -qq --no-install-recommends -o DPkg::Options::=--force-confold \
  prometheus prometheus-alertmanager redis-server nginx-light curl strace chromium \
  libreoffice-writer-nogui libreoffice-calc-nogui >/dev/null
