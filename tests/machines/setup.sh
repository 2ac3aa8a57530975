#!/bin/sh
# Make the images of tests/machines. Docker needs no preparation, because it pulls them. A machine without an engine and a registry
# gets Podman from a container lab (tests/containers/setup.sh), and images with the same names from Debian's packages: Debian 12 and
# 13, and for Python 3.14 the release of Debian that has it. Debian has no Python 3.12: PYTHON_3_12 is the folder of an installed one,
# with bin/python3 and lib; without it that image is not made.
set -eu
cd "$(dirname "$0")/../.."
if docker info >/dev/null 2>&1; then exit 0; fi
lab=${CONTAINER_LAB_TOOL:-../shared/tools/container-lab}
if [ ! -x "$lab" ]; then
  echo "no container engine: start Docker, or name a container lab with CONTAINER_LAB_TOOL" >&2
  exit 1
fi
command -v podman >/dev/null && command -v debootstrap >/dev/null || "$lab" up
folder=$(mktemp -d)
trap 'rm -rf "$folder"; podman rm --force --ignore taugate-machine >/dev/null' EXIT

debian() { # SUITE NAME:TAG [SCRIPT]: an image of Debian's minimal packages
  if podman image exists "docker.io/library/$2"; then return; fi
  debootstrap --variant=minbase "$1" "$folder/$1" "" ${3:+"$3"} >"$folder/log" || { cat "$folder/log" >&2; exit 1; }
  tar -C "$folder/$1" -c . | podman import - "docker.io/library/$2" >/dev/null
  rm -rf "${folder:?}/$1"
}

debian bookworm debian:12
debian trixie debian:13
debian forky debian:forky /usr/share/debootstrap/scripts/sid

with() { # COMMAND BASE NAME:TAG [OPTION…]: an image of BASE after a command in it
  if podman image exists "docker.io/library/$3"; then return; fi
  command=$1 base=$2 name=$3
  shift 3
  podman run --name taugate-machine "$@" "docker.io/library/$base" sh -euc "$command" >/dev/null
  podman commit --quiet taugate-machine "docker.io/library/$name" >/dev/null
  podman rm taugate-machine >/dev/null
}

apt='export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; apt-get install -qq --yes --no-install-recommends'
# A mirror may keep a copy of an unstable release for longer than its signature is valid.
with "echo 'Acquire::Check-Valid-Until \"false\";' >/etc/apt/apt.conf.d/99-lab
  $apt python3 python3-venv" debian:forky python:3.14-slim
if [ -n "${PYTHON_3_12:-}" ]; then
  with "$apt libbz2-1.0 libffi8 liblzma5 libncursesw6 libreadline8 libsqlite3-0 libssl3 zlib1g
    cp -r /python/bin /python/lib /usr/local/; ldconfig" debian:12 python:3.12-slim "--volume=$PYTHON_3_12:/python:ro"
fi
