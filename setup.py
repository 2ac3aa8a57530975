"""Builds the long description from README.md: relative links are dead on a package index."""

import re
import tomllib
from pathlib import Path

from setuptools import Extension, setup

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


# Without a compiler the service encodes with onnxruntime. Sums keep their order without contraction of a·b + c.
# Integers wrap, because weights that are not numbers give sums beyond 32 bits.
KERNEL = Extension(
    "taugate.retrieval.encoder.kernel",
    [f"src/taugate/retrieval/encoder/{name}.c" for name in ("kernel", "encode", "avx2", "int8", "bfloat16", "float32")],
    depends=[f"src/taugate/retrieval/encoder/{name}.h" for name in ("kernel", "lanes", "encode")],
    extra_compile_args=["-O3", "-fvisibility=hidden", "-ffp-contract=off", "-fwrapv", "-fno-math-errno", "-Wno-psabi"],
    py_limited_api=True,
    optional=True,
)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=long_description(
            (HERE / "README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Source")
        ),
        long_description_content_type="text/markdown",
        ext_modules=[KERNEL],
    )
