#!/bin/sh
# Install PyTorch and calibration.txt: `sh deploy/requirements/calibration.sh PIP…`, where PIP… is the pip that does it.
# PyTorch comes first, as its builds differ in what they ask for: the one for the CPU where pip is configured with an index or a folder
# that has it, else the package index's own, which on Linux brings gigabytes of CUDA. Every file is checked by its hash.
set -eu
folder=$(dirname "$0")
if ! "$@" install --no-deps --require-hashes --requirement "$folder/torch-cpu.txt"; then
  echo "calibration.sh: no build of PyTorch for the CPU that matches torch-cpu.txt: installing the package index's build" >&2
  "$@" install --no-deps --require-hashes --requirement "$folder/torch.txt"
fi
"$@" install --require-hashes --requirement "$folder/calibration.txt"
