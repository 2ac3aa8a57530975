"""Measure the size of the container images."""

from benchmarks.deploy.plan import ContainerPlan
from benchmarks.markdown import table, verdict
from tests.containers.engine import base_image, image, inspected, run

HEADING = "Images"
_MOST, _LARGEST = 450, 8  # MB beyond the base, as the project was asked for; packages named
_SIZES = """
import pathlib
for path in sorted(pathlib.Path("/opt/taugate/lib").glob("python*/site-packages/*")):
    print(sum(each.stat().st_size for each in path.rglob("*") if each.is_file()) if path.is_dir() else path.stat().st_size, path.name)
"""


def section(_: ContainerPlan) -> str:
    """List the size of each image and of its largest packages."""
    base = _megabytes(base_image())
    rows, beyond = [], {}
    for target in ("service", "service-milvus", "calibration", "mcp"):
        size = _megabytes(image(target))
        beyond[target] = size - base
        rows.append([target, f"{size:,.0f} MB", f"{beyond[target]:,.0f} MB", _packages(target)])
    most = beyond["service"]
    wanted = ["service beyond the base", f"at most {_MOST} MB", f"{most:,.0f} MB", verdict(reached=most <= _MOST)]
    return f"""\
Sizes are uncompressed, as the container engine reports them. The calibration image has PyTorch's build for the CPU. The base,
`{base_image()}`, has {base:,.0f} MB.

{table(["image", "size", "beyond the base", "largest packages (MB)"], rows)}

{table(["target", "wanted", "measured", ""], [wanted])}"""


def _megabytes(name: str) -> float:
    return float(inspected(name)["Size"]) / 1e6


def _packages(target: str) -> str:
    listed = run("run", "--rm", "--entrypoint", "python", image(target), "-c", _SIZES).stdout.split("\n")
    sizes = sorted(((int(size), name) for size, name in (line.split(" ", 1) for line in listed if line)), reverse=True)
    return ", ".join(f"{name} {size / 1e6:,.0f}" for size, name in sizes[:_LARGEST])
