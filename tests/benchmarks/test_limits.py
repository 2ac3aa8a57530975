import subprocess
import sys

from benchmarks.reliability.limits import ResourceLimits

# Seconds of a processor in a second of the clock, which has to be far from one even on a busy machine.
SPIN = "import time; end = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nprint(time.process_time())"


def test_signals_leave_a_share_of_a_processor() -> None:
    command = ResourceLimits(0.2, 0).wrap([sys.executable, "-c", SPIN])  # no control group was made
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert float(said) < 0.7


def test_who_takes_more_memory_is_killed() -> None:
    command = ResourceLimits(0.5, 64 << 20).wrap(
        [sys.executable, "-c", "import time; kept = b'1' * (256 << 20); time.sleep(60)"]
    )
    assert subprocess.run(command, check=False, timeout=60).returncode == 128 + 9
