"""`taugate adapt` in a process of its own, with a checkpoint after every step and one merge weight, to be killed."""

import sys

from taugate.cli import main as cli
from taugate_adapt import budget
from taugate_adapt.training import run

if __name__ == "__main__":
    run.SAVE_SECONDS = 0.0
    budget.MERGE_WEIGHTS = (0.5,)
    sys.exit(cli.main(["adapt", *sys.argv[1:]]))
