"""Build the documentation site into build/site/html: `make docs` runs it.

Pages of docs/ are also read in the repository, so their links name its files, some of them outside docs/. This program
copies every page to build/site/pages and rewrites such links: to the site's page for the file, or to a copy of it.
Zensical then builds the site, and fails if the target of a link or an anchor does not exist. At the address of a page
that moved, moved.yml says where it is now, and a short page leads there.
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

from deploy.site.llms import listed, write_llms
from deploy.site.plots import PlotError, with_plots

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "mkdocs.yml"
MOVED = Path(__file__).with_name("moved.yml")
# Pages outside docs/, with their paths on the site.
PAGES_OUTSIDE_DOCS = {
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",  # the first page of the site covers the README
    "SECURITY.md": "reporting.md",
    "benchmarks/decisions.md": "benchmarks/decisions.md",
    "helm/taugate/README.md": "reference/chart.md",
}
_RESULTS = "benchmarks/results"  # their pages are in benchmarks/ on the site
_MOVED_PAGE = """\
<!doctype html><meta charset="utf-8"><title>This page moved</title><link rel="canonical" href="{target}">
<meta http-equiv="refresh" content="1; url={target}"><p>This page moved to <a href="{target}">{target}</a>.</p>
<script>location.replace(location.hash ? "{page}" + location.hash : "{target}")</script>
"""
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?=[)#])")


class SiteError(Exception):
    """Pages, links and navigation do not match; the message names the page and the remedy."""


def main() -> int:
    """Build the site; returns an exit status, 1 after one line for each error."""
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(CONFIGURATION)]
    try:
        stage()
        status = subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 (our own command)
        if status == 0:
            configuration = read_configuration()
            site = ROOT / str(configuration["site_dir"])
            write_redirects(site)
            write_llms(site, ROOT / str(configuration["docs_dir"]), configuration)
    except (SiteError, PlotError) as error:
        print(error, file=sys.stderr)  # noqa: T201 (a developer's command)
        return 1
    return status


def moved() -> dict[str, str]:
    """Return where pages are now, by the paths on the site that they had."""
    pages: dict[str, str] = yaml.safe_load(MOVED.read_text(encoding="utf-8"))
    return pages


def write_redirects(site: Path) -> None:
    """Write a page that leads to the new address, at each address that a page had.

    Raises:
        SiteError: If a page is still there, or if its new address does not exist.
    """
    for old, new in moved().items():
        page, _, anchor = new.partition("#")
        path = (site / old).with_suffix(".html")
        built = (site / page).with_suffix(".html")
        if path.exists():
            raise SiteError(f"{MOVED.name}: {old} is still a page")
        if not built.is_file() or (anchor and f'id="{anchor}"' not in built.read_text(encoding="utf-8")):
            raise SiteError(f"{MOVED.name}: {old} leads to {new}, which does not exist")
        address = os.path.relpath(built, path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        target = f"{address}#{anchor}" if anchor else address
        path.write_text(_MOVED_PAGE.format(page=address, target=target), encoding="utf-8")


def stage() -> Path:
    """Copy every page to the folder that the site is built from, and return that folder.

    Raises:
        SiteError: If the navigation lacks a page, or if an entry or a link names a file that does not exist.
        PlotError: If a page lacks the table of a plot.
    """
    configuration = read_configuration()
    folder = ROOT / str(configuration["docs_dir"])
    sources = {page: source for source, page in _pages()}
    check_navigation(set(sources), list(listed(configuration["nav"])))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md"))
    for page, source in sources.items():
        text = rewrite_links((ROOT / source).read_text(encoding="utf-8"), source, page, folder)
        text = with_plots(text, page)
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")
    return folder


def read_configuration() -> dict[str, Any]:
    """Read mkdocs.yml."""
    configuration: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    return configuration


def check_navigation(pages: set[str], listed: list[str]) -> None:
    """Raise SiteError unless the navigation lists each page once.

    Args:
        pages: Paths of all pages on the site.
        listed: Paths in the navigation, in its order.
    """
    errors = [f"{page}: is not in the navigation; add it to `nav` in mkdocs.yml" for page in sorted(pages - {*listed})]
    errors += [f"{page}: is in the navigation, but does not exist" for page in listed if page not in pages]
    errors += [f"{page}: is in the navigation twice" for page in sorted({p for p in listed if listed.count(p) > 1})]
    if errors:
        raise SiteError("\n".join(errors))


def rewrite_links(text: str, source: str, page: str, folder: Path) -> str:
    """Return the text of a page with links that work on the site.

    Args:
        text: Text of the page.
        source: Path of the page in the repository.
        page: Path of the page on the site.
        folder: Folder that the site is built from. It gets a copy of each linked file that is not a page.

    Raises:
        SiteError: If the target of a link does not exist.
    """
    sources = PAGES_OUTSIDE_DOCS | dict(_results())

    def link(match: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(source).parent / match["path"])
        if (ROOT / target).is_dir():
            target += "/index.md"
        if not (ROOT / target).is_file():
            raise SiteError(
                f"{source}: links to {match['path']}, which is neither a file nor a folder with an index.md"
            )
        if target in sources:
            target = sources[target]
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        else:
            copy = folder / "files" / target
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / target, copy)
            target = f"files/{target}"
        return os.path.relpath(target, PurePosixPath(page).parent)

    return _LINK.sub(link, text)


def _pages() -> Iterator[tuple[str, str]]:
    """Yield the path of each page in the repository and its path on the site."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        yield path.relative_to(ROOT).as_posix(), path.relative_to(ROOT / "docs").as_posix()
    yield from _results()
    for source, page in PAGES_OUTSIDE_DOCS.items():
        if page != "index.md" and (ROOT / source).exists():
            yield source, page


def _results() -> Iterator[tuple[str, str]]:
    """Yield the pages that benchmarks write, like _pages."""
    for path in sorted((ROOT / _RESULTS).glob("*.md")):
        yield path.relative_to(ROOT).as_posix(), f"benchmarks/{path.name}"


if __name__ == "__main__":
    sys.exit(main())
