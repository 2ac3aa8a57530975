"""Build the documentation site into build/site/html: `make docs` runs it.

The pages of docs/ are read on their own, too, so their links lead to files of the repository. Some of these files are
outside docs/. Here every page is copied to build/site/pages and such links are rewritten: to the page that the site
makes of the file, or to a copy of it. Zensical then builds the site, and ends with an error where a link or an anchor
leads nowhere.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from deploy.site.plots import PlotError, with_plots

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "mkdocs.yml"
# Pages that are kept where people look for them, with their places on the site.
PAGES_ELSEWHERE = {
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",  # the site's first page says what the README says
    "SECURITY.md": "reporting.md",
    "helm/taugate/README.md": "reference/chart.md",
}
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?=[)#])")


class SiteError(Exception):
    """The pages do not fit together; the message says which, and what to do."""


def main() -> int:
    """Build the site; returns 0, or 1 after one line for each fault."""
    try:
        stage()
    except (SiteError, PlotError) as error:
        print(error, file=sys.stderr)  # noqa: T201 (a developer's command)
        return 1
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(CONFIGURATION)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 (our own command)


def stage() -> Path:
    """Copy every page to where the site is built from, and return that folder.

    Raises:
        SiteError: Where the navigation lacks a page or names one that does not exist, and where a link leads to a file
            that does not exist; PlotError where a page lacks the table of a plot.
    """
    configuration = read_configuration()
    folder = ROOT / str(configuration["docs_dir"])
    sources = {place: source for source, place in _pages()}
    check_navigation(set(sources), list(_listed(configuration["nav"])))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md"))
    for place, source in sources.items():
        text = rewritten((ROOT / source).read_text(encoding="utf-8"), source, place, folder)
        text = with_plots(text, place)
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8")
    return folder


def read_configuration() -> dict[str, Any]:
    """Read mkdocs.yml, whose values are of many kinds."""
    configuration: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    return configuration


def check_navigation(pages: set[str], listed: list[str]) -> None:
    """Raise SiteError unless the navigation lists each page once.

    Args:
        pages: Places of all pages on the site.
        listed: Those in the navigation, in its order.
    """
    faults = [f"{page}: is not in the navigation; add it to `nav` in mkdocs.yml" for page in sorted(pages - {*listed})]
    faults += [f"{page}: is in the navigation, and there is no such page" for page in listed if page not in pages]
    faults += [f"{page}: is in the navigation twice" for page in sorted({p for p in listed if listed.count(p) > 1})]
    if faults:
        raise SiteError("\n".join(faults))


def rewritten(text: str, source: str, place: str, folder: Path) -> str:
    """Return a page whose links fit the site.

    Args:
        text: The page.
        source: Its path in the repository.
        place: Its path on the site.
        folder: Where the site is built from, which gets a copy of each file that is linked and is no page.

    Raises:
        SiteError: For a link to nothing.
    """

    def link(found: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(source).parent / found["path"])
        if (ROOT / target).is_dir():
            target += "/index.md"
        if not (ROOT / target).is_file():
            raise SiteError(f"{source}: links to {found['path']}, which is neither a file nor a folder with a page")
        if target in PAGES_ELSEWHERE:
            target = PAGES_ELSEWHERE[target]
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        else:
            copy = folder / "files" / target
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / target, copy)
            target = f"files/{target}"
        return os.path.relpath(target, PurePosixPath(place).parent)

    return _LINK.sub(link, text)


def _pages() -> Iterator[tuple[str, str]]:
    """Yield each page's path in the repository and its place on the site."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        yield path.relative_to(ROOT).as_posix(), path.relative_to(ROOT / "docs").as_posix()
    for source, place in PAGES_ELSEWHERE.items():
        if place != "index.md" and (ROOT / source).exists():
            yield source, place


def _listed(navigation: object) -> Iterator[str]:
    """Yield the pages of a navigation, which nests lists and mappings of titles."""
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, dict):
        for entry in navigation.values():
            yield from _listed(entry)
    elif isinstance(navigation, list):
        for entry in navigation:
            yield from _listed(entry)


if __name__ == "__main__":
    sys.exit(main())
