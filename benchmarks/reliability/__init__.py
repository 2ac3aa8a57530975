"""Bad days: kills, damage, overload and attacks, and what they leave."""

import sys
from pathlib import Path

_BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path += [str(_BENCHMARKS / "serving"), str(_BENCHMARKS / "calibration")]  # servers and loads, Markdown
