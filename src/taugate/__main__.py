"""`python -m taugate` is the command `taugate`."""

import sys

from taugate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
