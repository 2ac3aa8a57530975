"""Print the requirements of pyproject.toml and of some of its extras, for a layer of an image that has nothing else."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
requirements = [*project["dependencies"], *(each for name in sys.argv[1:] for each in extras[name])]
sys.stdout.write("\n".join(requirements) + "\n")
