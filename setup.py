"""What pyproject.toml cannot say: the sdist keeps the repository's links, and the long description has no dead ones."""

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent


def long_description(readme: str, source: str | None) -> str:
    """Return the README as a package index can show it, where the files that it links to are not.

    readme: in Markdown; source: URL below which the files of this version are, None where there is none. With a URL
    links become absolute; without one they become plain text, and pictures are left out.
    """

    def link(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        if re.match(r"#|[a-z]+:", target):
            return found[0]
        if source is not None:
            return f"{image}[{text}]({source}/{target})"
        return "" if image else text

    if source is None:
        readme = re.sub(r"<picture>.*?</picture>\s*", "", readme, flags=re.DOTALL)
    else:
        readme = re.sub(r'(src|srcset|href)="(?!#|[a-z]+:)', rf'\1="{source}/', readme)
    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", link, readme)


class LinkedSdist(sdist):
    """The tree of the repository with its links as links: a test finds in it what it finds there."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files, then put each link in the place of the copy that setuptools made of its target."""
        super().make_release_tree(base_dir, files)
        parents = {parent for name in files for parent in Path(name).parents}
        for path in sorted(path for path in {*parents, *map(Path, files)} if path.is_symlink()):
            copied = Path(base_dir, path)
            if copied.is_dir():
                shutil.rmtree(copied)
            else:
                copied.unlink()
            copied.symlink_to(path.readlink())


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=long_description(
            (HERE / "README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Source")
        ),
        long_description_content_type="text/markdown",
        cmdclass={"sdist": LinkedSdist},
    )
