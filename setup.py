"""Builds the long description from README.md: relative links are dead on a package index."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent


def long_description(readme: str, source: str | None) -> str:
    """Return the README for a package index, which does not have the files that it links to.

    Args:
        readme: Markdown.
        source: Base URL of the files of this version. Links become absolute. Without it, links become plain text and
            pictures are left out.
    """

    def link(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        if re.match(r"#|[a-z]+:", target):
            return match[0]
        if source is not None:
            return f"{image}[{text}]({source}/{target})"
        return "" if image else text

    if source is None:
        readme = re.sub(r"<picture>.*?</picture>\s*", "", readme, flags=re.DOTALL)
    else:
        readme = re.sub(r'(src|srcset|href)="(?!#|[a-z]+:)', rf'\1="{source}/', readme)
    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", link, readme)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=long_description(
            (HERE / "README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Source")
        ),
        long_description_content_type="text/markdown",
    )
