"""Names that Taugate looks up by itself, which would say to others that it runs, and where."""

import tempfile
from pathlib import Path

from benchmarks.checkout import python_path
from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting
from tests.every_command import run_every_command
from tests.network_trace import contacts, traced, unavailable

_SERVE_SECONDS = 60.0  # ONNX Runtime, if it may, looks its collector up every ten
_SHOWN = 5


def every_command(setting: AttackSetting) -> AttackResult:
    """Run every command once, the service for a minute, and record the names looked up and the other hosts asked."""
    if reason := unavailable():
        raise RuntimeError(reason)
    with tempfile.TemporaryDirectory(prefix="taugate-lookups-") as folder:
        traces, path = Path(folder) / "traces", {"PYTHONPATH": python_path(setting.root)}
        runs = list(run_every_command(Path(folder), traced(traces), path, _SERVE_SECONDS))
        asked = sorted(contacts(traces))
    failed = [run.run.command for run in runs if run.status != run.run.status]
    measured = f"{len(runs)} runs ask {', '.join(asked[:_SHOWN]) or 'nobody'}"
    if failed:
        measured += f"; {', '.join(failed[:_SHOWN])} failed"
    return AttackResult("names and hosts that commands ask for", measured, "nobody", held=not asked and not failed)
