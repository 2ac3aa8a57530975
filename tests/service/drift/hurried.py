"""`taugate` whose watch analyzes ten times as often as it does, so that no test waits for it; see traffic.Hurried.

Run as a program, and never imported by a test: workers import it again, and so are in a hurry as well.
"""

import sys

from taugate.cli import main as cli
from taugate.service.drift import analysis, fleet, watch

_WEIGH_SECONDS = 0.5
watch._INTERVAL_SECONDS = _WEIGH_SECONDS / 5
analysis._WEIGH_SECONDS, analysis._SHOW_SECONDS = _WEIGH_SECONDS, 3 * _WEIGH_SECONDS
fleet._PAUSE_SECONDS = _WEIGH_SECONDS

if __name__ == "__main__":
    sys.exit(cli.main())
