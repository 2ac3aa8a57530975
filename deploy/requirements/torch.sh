#!/bin/sh
# Install the extra `torch` on top of calibration.txt: `sh deploy/requirements/torch.sh PIP…`, where PIP… is the pip that does it.
# PyTorch has two files, because its builds differ in what they require. An installed build of the right version is kept. Otherwise pip
# takes the build for the CPU if one of its indexes or folders has it, else the package index's own, which on Linux brings CUDA along.
# Every downloaded file is checked by its hash.
set -eu
folder=$(dirname "$0")
torch=$(sed -n 's/^torch==\([0-9.]*\)+cpu.*/\1/p' "$folder/torch-cpu.txt")

with_cuda() {
  cat >&2 <<END
torch.sh: pip knows no index or folder with a CPU-only build of PyTorch $torch for this Python. Downloading the package index's
  build with CUDA instead: 2.7 GB to download and 4.6 GB on disk, 7.3 GB with pip's cache. The build for the CPU takes 0.2 GB and
  0.8 GB. To use it, press Ctrl-C, set PIP_EXTRA_INDEX_URL to PyTorch's index of builds for the CPU, or PIP_FIND_LINKS to a folder
  that contains its wheel, and run the command again.
END
  "$@" install --no-deps --require-hashes --requirement "$folder/torch.txt"
}

if ! "$@" freeze | grep -qE "^torch(==| @ .*/torch-)$torch"; then
  if ! message=$("$@" install --no-deps --require-hashes --requirement "$folder/torch-cpu.txt" 2>&1); then
    case $message in
      *"No matching distribution"*) ;;
      *) printf '%s\n' "$message" >&2 ;;
    esac
    with_cuda "$@"
  fi
fi
"$@" install --no-deps --require-hashes --requirement "$folder/sentence-transformers.txt"
