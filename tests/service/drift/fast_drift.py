"""`taugate` with ten times shorter drift intervals, so that tests need not wait; see traffic.FastDriftService.

Run as a program, and never imported by a test: workers import it again, and so use the shorter intervals as well.
"""

import sys

from taugate.cli import main as cli
from taugate.service import replicas
from taugate.service.drift import analysis, watch

_UPDATE_SECONDS = 0.5
watch.STORE_SECONDS = _UPDATE_SECONDS / 5
analysis._UPDATE_SECONDS, analysis._SHOW_SECONDS = _UPDATE_SECONDS, 3 * _UPDATE_SECONDS
replicas._PAUSE_SECONDS = _UPDATE_SECONDS

if __name__ == "__main__":
    sys.exit(cli.main())
