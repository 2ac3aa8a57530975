#!/bin/sh
# Build the images that tests/containers run, with Docker, or with a container lab: a script for machines without an engine
# or a registry (`up`, `image KIND NAME:TAG`, `build DIR …`, `down`), which CONTAINER_LAB_TOOL names. --no-cache: from scratch, as a lab
# does in any case: every layer that is kept would be a copy of all files below it.
set -eu
cd "$(dirname "$0")/../.."
if docker info >/dev/null 2>&1; then
  docker pull --quiet "$(sed -n 's/^ARG PYTHON=//p' deploy/docker/Dockerfile)"  # of which a build leaves no image behind
  docker compose --profile demo --profile mcp build "$@"
  docker compose -f docker-compose.yml -f deploy/compose/milvus.yml build "$@" service  # the image service-milvus
  exec docker build . -f deploy/docker/Dockerfile --target sbom --output build/sbom
fi
lab=${CONTAINER_LAB_TOOL:-../shared/tools/container-lab}
if [ ! -x "$lab" ]; then
  echo "no container engine: start Docker, or name a container lab with CONTAINER_LAB_TOOL" >&2
  exit 1
fi
"$lab" up
in_compose() { sed -n "s|^ *image: \($1.*\)|\1|p" docker-compose.yml deploy/compose/milvus.yml; }
"$lab" image python "$(sed -n 's/^ARG PYTHON=//p' deploy/docker/Dockerfile)"
"$lab" image redis "$(in_compose redis)"
"$lab" image prometheus "$(in_compose prom/prometheus)"
"$lab" image alertmanager "$(in_compose prom/alertmanager)"
# Folders of packages that pip here is configured with, for pip in the build.
set --
for folder in $(python3 -m pip config list | grep -oE "(file:/)?/[^' ]+" | sed 's|^file://||; s|/simple$||'); do
  [ -d "$folder" ] && set -- "$@" -v "$folder:$folder:ro"
done
for target in service service-milvus calibration mcp; do
  "$lab" build . -f deploy/docker/Dockerfile --target "$target" --format docker "$@" \
    -t "$(in_compose "taugate/$target:" | head -n 1)"
done
"$lab" build . -f deploy/docker/Dockerfile --target sbom "$@" --output build/sbom
