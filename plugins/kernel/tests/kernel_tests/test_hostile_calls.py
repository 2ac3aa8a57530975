"""No sizes, texts or weights make the kernel read or write outside its memory, or divide by zero."""

import ast
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("calls", [100, pytest.param(400, marks=pytest.mark.exhaustive)])
def test_hostile_calls_under_sanitizers_report_nothing(tmp_path: Path, calls: int) -> None:
    # Without optimisation, which takes four fifths of the time.
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O0"]
    extension = runpy.run_path(str(PLUGIN / "setup.py"))["KERNEL"]
    flags = [flag for flag in extension.extra_compile_args if flag != "-O3"]
    include, built = f"-I{sysconfig.get_path('include')}", tmp_path / "kernel.abi3.so"
    sources = [PLUGIN / name for name in extension.sources]
    subprocess.run(["gcc", "-shared", "-fPIC", include, *flags, *sanitize, *sources, "-o", built, "-lm"], check=True)
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "TEST_KERNEL"},  # every path of the processor
        "LD_PRELOAD": library.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # Python itself keeps memory until its end
        "PYTHONMALLOC": "malloc",  # so that the sanitizer sees the ends of Python's objects
    }
    driver = Path(__file__).with_name("hostile_calls.py")
    command = [sys.executable, driver, tmp_path, "0", str(calls)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    outcomes = ast.literal_eval(ran.stdout)
    names = ("vectors", "no vectors", "no model", "products", "no products")
    assert min(outcomes[name] for name in names) > calls / 20
