"""`taugate adapt` in a process of its own, with a checkpoint after every step, to be killed."""

import sys

from taugate.adaptation.training import run
from taugate.cli import main as cli

if __name__ == "__main__":
    run.SAVE_SECONDS = 0.0
    sys.exit(cli.main(["adapt", *sys.argv[1:]]))
