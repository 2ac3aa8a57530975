"""What this processor multiplies at most with AVX2, by the loops of limit.c, which the machine's compiler builds."""

import ctypes
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_ROUNDS = 2_000_000  # 50 to 200 ms
Limit = Callable[[], float]


def limits(folder: Path) -> dict[str, Limit]:
    """Return what measures the products a second in float32 and in int8; nothing without a compiler or AVX2."""
    built = folder / "limit.so"
    cpu = Path("/proc/cpuinfo")
    if not cpu.is_file() or " avx2 " not in cpu.read_text("utf-8"):
        return {}
    command = ["cc", "-O2", "-shared", "-fPIC", str(Path(__file__).with_name("limit.c")), "-o", str(built)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    library = ctypes.CDLL(str(built))
    return {name: _measured(library[f"{name}_limit"]) for name in ("float32", "int8")}


def _measured(loop: Callable[..., int]) -> Limit:
    loop.restype, loop.argtypes = ctypes.c_int64, [ctypes.c_int64]  # type: ignore[attr-defined]

    def measure() -> float:
        began = time.process_time()
        products = loop(_ROUNDS)
        return products / (time.process_time() - began)

    return measure
