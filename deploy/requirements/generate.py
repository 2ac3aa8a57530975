"""Write the requirements of this folder with a hash for every file that may be installed; `make requirements` runs it.

Versions are those of constraints.txt. uv resolves for every platform at once; pip-tools would resolve only for the
interpreter that runs it. `--upgrade` takes the newest version of each package that constraints.txt does not pin.
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
# By folder, the core and the plug-ins that an image has, with their extras.
SERVICE = {
    ".": ["signing", "storage", "traces"],
    "plugins/engines": ["pgvector"],
    "plugins/kernel": [],
    "plugins/playground": [],
}
# The image service-milvus: with pandas, which Milvus needs, the image service would exceed its limit of 450 MB.
MILVUS = {**SERVICE, "plugins/engines": ["pgvector", "milvus"]}
CLIENT = "clients/python"  # the image mcp has its extra mcp
# The image calibration has what the service has as well.
CALIBRATION = {".": ["calibration", "sample"], "plugins/kernel": [], "plugins/label": [], "plugins/playground": []}
TORCH = {**CALIBRATION, ".": [*CALIBRATION["."], "torch"], "plugins/adapt": []}
# PyTorch and the packages that its build with CUDA needs. They have their own file, because the CPU build needs none.
_PYTORCH = ("torch", "cuda-", "nvidia-", "triton")


def main() -> None:
    """Write every file; if uv cannot resolve one, its message says which pins conflict."""
    service = _compiled(asked(SERVICE), _blocks("service.txt"))
    _write("service.txt", service)
    # milvus.txt is installed on top of service.txt.
    with_milvus = _compiled(asked(MILVUS), service | _blocks("milvus.txt"))
    _write("milvus.txt", {name: block for name, block in with_milvus.items() if name not in service})
    _write("gpu.txt", _compiled(_lines("gpu.in"), _blocks("gpu.txt")))
    _write("build.txt", _compiled(_lines("build.in"), _blocks("build.txt")))
    _write("mcp.txt", _compiled(asked({CLIENT: ["mcp"]}), _blocks("mcp.txt")))
    previous = _blocks("calibration.txt")
    calibration = _compiled(asked(CALIBRATION), service | previous)
    _write("calibration.txt", calibration)
    _write("sample.txt", _compiled(_lines("sample.in"), _blocks("sample.txt"), "--no-deps"))
    # These two are installed on top of calibration.txt.
    previous |= _blocks("sentence-transformers.txt") | _blocks("torch.txt")
    blocks = _compiled(asked(TORCH), previous | calibration)
    added = {name: block for name, block in blocks.items() if name not in calibration}
    _write("torch.txt", {name: block for name, block in added.items() if name.startswith(_PYTORCH)})
    _write("sentence-transformers.txt", {name: block for name, block in added.items() if not name.startswith(_PYTORCH)})


def asked(folders: dict[str, list[str]]) -> list[str]:
    """Return what distributions require with their extras, except the core, which is not on a package index.

    Args:
        folders: By folder of a distribution, its extras.
    """
    lines: list[str] = []
    for folder, extras in folders.items():
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
        lines += project["dependencies"]
        lines += [line for extra in extras for line in project["optional-dependencies"][extra]]
    return [line for line in lines if not re.match(r"taugate\b", line)]


def _lines(name: str) -> list[str]:
    return (FOLDER / name).read_text(encoding="utf-8").splitlines()


def _compiled(lines: list[str], previous: dict[str, str], *options: str) -> dict[str, str]:
    """Return each requirement with its hashes, by name; previous versions are kept unless constraints.txt differs."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "requirements.in", Path(folder) / "requirements.txt"
        source.write_text("\n".join(lines), encoding="utf-8")
        # Without hashes: uv would copy them from this file, right or wrong.
        output.write_text("".join(f"{block.split()[0]}\n" for block in previous.values()), encoding="utf-8")
        uv = [
            f"{sysconfig.get_path('scripts')}/uv",
            "pip",
            "compile",
            str(source),
            *sys.argv[1:],
            f"--output-file={output}",
        ]
        every = [*options, "--universal", "--python-version=3.11", "--generate-hashes", "--constraints=constraints.txt"]
        quiet = ["--quiet", "--no-annotate", "--no-header", "--system-certs"]
        subprocess.run([*uv, *every, *quiet], cwd=ROOT, check=True)  # noqa: S603 (uv, with the arguments above)
        return _parsed(output.read_text(encoding="utf-8"))


def _blocks(name: str) -> dict[str, str]:
    path = FOLDER / name
    return _parsed(path.read_text(encoding="utf-8")) if path.exists() else {}


def _parsed(text: str) -> dict[str, str]:
    """Return the lines of each requirement by name; lines of hashes are indented."""
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
