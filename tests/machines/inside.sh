#!/bin/sh
# The README's commands on a bare machine: `make quickstart`, a search, and `make test` with all servers. Runs as root in a container
# of tests/machines, which has this folder at /machines, and in it the repository as source.tar.
# Environment: PACKAGES: packages that the README requires and the image lacks; MINOR: the expected Python, such as 3.12;
# TESTS: arguments of pytest, default all tests; SKIP_TESTS: set to end after the search.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --yes --no-install-recommends $PACKAGES >/dev/null
mkdir /taugate && tar -xf /machines/source.tar -C /taugate
cd /taugate
python3 -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$MINOR')" || {
  echo "python3 of this image is $(python3 --version), not $MINOR" >&2
  exit 1
}
echo "== $(. /etc/os-release && echo "$PRETTY_NAME"), $(python3 --version)"

echo "== make quickstart"
start=$(date +%s)
make quickstart &
server=$!
until python3 -c "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=5)" 2>/dev/null; do
  kill -0 $server 2>/dev/null || { echo "make quickstart ended before it was ready" >&2; exit 1; }
  sleep 1
done
echo "== make quickstart: ready after $(($(date +%s) - start)) s; .venv has $(du -sm .venv | cut -f 1) MB"
python3 - <<'END'
import json
import urllib.request

query = {"query": "Who is liable for hidden defects?"}
request = urllib.request.Request(
    "http://127.0.0.1:8000/search", json.dumps(query).encode(), {"Content-Type": "application/json"}
)
best = json.load(urllib.request.urlopen(request, timeout=30))["results"][0]
assert best["id"] == "dolda-fel-013", best
print("== make quickstart: answers the question of the README")
END
kill $server
wait $server || true
[ -z "${SKIP_TESTS:-}" ] || exit 0

echo "== make test-servers"
make test-servers
echo "== make test"
start=$(date +%s)
TAUGATE_TEST_SERVERS=required make test ARGS="${TESTS:-}"
echo "== make test: passed after $(($(date +%s) - start)) s"
