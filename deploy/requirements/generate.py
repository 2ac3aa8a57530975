"""Write the requirements of this folder with a hash for every file that may be installed; `make requirements` runs it.

Versions are those of constraints.txt. uv resolves for every platform at once: what pip-tools writes holds for the
interpreter that it runs on alone, and lacks what an earlier Python 3.11 or another system needs. `--upgrade` takes the
newest version of what constraints.txt does not pin.
"""

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
SERVICE = ["pgvector", "signing", "storage", "traces"]  # extras of pyproject.toml that the image has
MILVUS = [
    *SERVICE,
    "milvus",
]  # those of service-milvus: with pandas, the image service would be over its limit of 450 MB
CLIENT = "clients/python/pyproject.toml"  # of which the image mcp has the extra of this name
CALIBRATION = [*SERVICE, "calibration", "sample"]
# PyTorch and what its build with CUDA asks for: a file of its own, as its build for the CPU asks for none of it.
TORCH = ("torch", "cuda-", "nvidia-", "triton")


def main() -> None:
    """Write every file. uv's own message says what keeps it from doing so, such as pins that exclude one another."""
    service = _compiled(["pyproject.toml", *_extras(SERVICE)], _blocks("service.txt"))
    _write("service.txt", service)
    # Installed on top of service.txt or calibration.txt. Not part of either: the quickstart needs no client of Milvus.
    with_milvus = _compiled(["pyproject.toml", *_extras(MILVUS)], service | _blocks("milvus.txt"))
    _write("milvus.txt", {name: block for name, block in with_milvus.items() if name not in service})
    _write("gpu.txt", _compiled(["deploy/requirements/gpu.in"], _blocks("gpu.txt")))
    _write("build.txt", _compiled(["deploy/requirements/build.in"], _blocks("build.txt")))
    _write("mcp.txt", _compiled([CLIENT, "--extra=mcp"], _blocks("mcp.txt")))
    before = _blocks("calibration.txt") | _blocks("torch.txt")
    everything = _compiled(["pyproject.toml", *_extras(CALIBRATION)], before)
    torch = {name: block for name, block in everything.items() if name.startswith(TORCH)}
    _write("torch.txt", torch)
    _write("calibration.txt", {name: block for name, block in everything.items() if name not in torch})


def _extras(names: list[str]) -> list[str]:
    return [f"--extra={name}" for name in names]


def _compiled(source: list[str], before: dict[str, str]) -> dict[str, str]:
    """Each requirement with its hashes, by name. A version of `before` stays, unless constraints.txt says otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "requirements.txt"
        # Without hashes: uv takes over those that it finds here, and a wrong one would stay.
        output.write_text("".join(f"{block.split()[0]}\n" for block in before.values()), encoding="utf-8")
        uv = [
            f"{sysconfig.get_path('scripts')}/uv",
            "pip",
            "compile",
            *source,
            *sys.argv[1:],
            f"--output-file={output}",
        ]
        how = ["--universal", "--python-version=3.11", "--generate-hashes", "--constraints=constraints.txt"]
        quiet = ["--quiet", "--no-annotate", "--no-header", "--system-certs"]
        subprocess.run([*uv, *how, *quiet], cwd=ROOT, check=True)  # noqa: S603 (the arguments are those above)
        return _parsed(output.read_text(encoding="utf-8"))


def _blocks(name: str) -> dict[str, str]:
    path = FOLDER / name
    return _parsed(path.read_text(encoding="utf-8")) if path.exists() else {}


def _parsed(text: str) -> dict[str, str]:
    """The lines of each requirement, by its name: those of its hashes are indented."""
    blocks: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            name = line.split("==")[0]
        blocks[name] = blocks.get(name, "") + line
    return blocks


def _write(name: str, blocks: dict[str, str]) -> None:
    text = "# Written by `make requirements`; pip installs it with --require-hashes.\n" + "".join(blocks.values())
    (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
