"""`taugate` whose watch analyzes ten times as often as it does, so that no test waits for it; see traffic.Hurried.

Run as a program, and never imported by a test: workers import it again, and so are in a hurry as well.
"""

import sys

from taugate.cli import main as cli
from taugate.service.drift import analysis, fleet, watch

_UPDATE_SECONDS = 0.5
watch._INTERVAL_SECONDS = _UPDATE_SECONDS / 5
analysis._UPDATE_SECONDS, analysis._SHOW_SECONDS = _UPDATE_SECONDS, 3 * _UPDATE_SECONDS
fleet._PAUSE_SECONDS = _UPDATE_SECONDS

if __name__ == "__main__":
    sys.exit(cli.main())
