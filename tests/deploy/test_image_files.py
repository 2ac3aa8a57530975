"""What the images leave out, and that they build for both architectures."""

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

from tests.deploy.locks import ROOT

DOCKER = ROOT / "deploy" / "docker"
KEPT = (
    "numpy/__init__.py",
    "numpy/testing/__init__.py",
    "onnxruntime/capi/onnxruntime_pybind11_state.so",
    "botocore/data/endpoints.json",
    "botocore/data/s3/2006-03-01/service-2.json.gz",
    "botocore/data/sso-oidc/2019-06-10/service-2.json.gz",
    "taugate_kernel/kernel.abi3.so",
)
REMOVED = (
    "numpy/_core/tests/test_api.py",
    "numpy/_core/lib/libnpymath.a",
    "numpy/_core/include/numpy/npy_os.h",
    "numpy/f2py/main.py",
    "numpy/__init__.pyi",
    "onnxruntime/capi/libonnxruntime.so.1.31.1",
    "onnxruntime/quantization/quantize.py",
    "botocore/data/ec2/2016-11-15/service-2.json.gz",
)


def test_image_of_service_lacks_what_it_never_reads(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in (*KEPT, *REMOVED):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).touch()
    subprocess.run(["sh", str(DOCKER / "strip.sh"), str(tmp_path)], check=True)
    left = {str(path.relative_to(packages)) for path in packages.rglob("*") if path.is_file()}
    assert left == set(KEPT)


def test_every_environment_is_checked() -> None:
    """The requirements of each environment hold, that of the image with a GPU included."""
    stages = (DOCKER / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")
    built = [stage for stage in stages if stage.partition("\n")[0].partition(" AS ")[2].startswith("build-")]
    assert len(built) == 6
    assert [stage.partition("\n")[0] for stage in built if "${PIP} check" not in stage] == []


def test_images_build_for_both_architectures() -> None:
    command = ["make", "--dry-run", "images", "REGISTRY=registry.example.org/taugate", "TARGETS=service"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--platform linux/amd64,linux/arm64" in printed
    missing = subprocess.run([*command[:3]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (missing.returncode, "REGISTRY is not set" in missing.stderr) == (2, True)


def test_build_context_has_every_copied_file() -> None:
    listed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    admitted = [f"{name}*" if name.endswith("/") else name for name in listed]
    lines = (DOCKER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    copied = {name for names in copies for name in names if name != "."}
    assert {"pyproject.toml", "deploy/docker/strip.sh"} <= copied
    assert {name for name in copied if not any(fnmatch(name, pattern) for pattern in admitted)} == set()
