#!/bin/sh
# Creates passwords and API keys for docker-compose.yml once: .env and secrets/, with random values, private to this user.
# Needs only a POSIX shell and coreutils. Existing files are kept.
set -eu
umask 077
cd "$(dirname "$0")/../.."

random() { head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n'; }
sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d ' ' -f 1; }

if [ -e .env ] || [ -e secrets ]; then
  echo "secrets.sh: .env or secrets/ is there already, nothing was changed; remove both to have new ones" >&2
  exit 1
fi
app="taugate_$(random)" prometheus="taugate_$(random)" admin="taugate_$(random)"
# The folder is private and its files are readable: containers run as other users, and mount only the files.
mkdir secrets
printf '%s' "$app" >secrets/app.key
printf '%s' "$admin" >secrets/admin.key
printf '%s' "$prometheus" >secrets/prometheus.key
printf '%s' "$(random)" >secrets/engine.password
cat >secrets/keys.json <<JSON
[
  {"name": "app", "sha256": "$(printf '%s' "$app" | sha256)", "scopes": ["search", "feedback"]},
  {"name": "prometheus", "sha256": "$(printf '%s' "$prometheus" | sha256)", "scopes": ["metrics"]},
  {"name": "admin", "sha256": "$(printf '%s' "$admin" | sha256)", "scopes": ["admin"]}
]
JSON
chmod 644 secrets/*
printf 'REDIS_PASSWORD=%s\nGRAFANA_PASSWORD=%s\n' "$(random)" "$(random)" >.env
echo "made .env (passwords of Redis and Grafana) and secrets/ (API keys: app, prometheus, admin; password of the engine)"
