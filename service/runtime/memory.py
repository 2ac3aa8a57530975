"""What the process keeps of what was loaded, and what it gives back."""

import ctypes
import gc
import sys


def settle() -> None:
    """Take what was loaded out of the garbage collector's sight, which would look at all of it again and again.

    Under load such looks are what holds up the slowest refusals (docs/benchmarks/serving.md, "Overload").
    """
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Free what nobody refers to any more, cycles that were settled included, and hand it to the system.

    glibc keeps what is freed for later, an encoder's weights among it: without this a process that swaps releases is as
    large as the largest two it ever had at once.
    """
    gc.unfreeze()
    settle()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in every libc
        if trim is not None:
            trim(0)
