"""The documentation site: it builds without a warning, has every page, and loads nothing from other hosts."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deploy.site import build
from deploy.site.plots import PlotError, with_plots
from tests.servers import CHROMIUM, require

ROOT = Path(__file__).resolve().parents[2]
# Classes that make the theme's scripts load a library from another host.
LOADERS = re.compile(r'class="[^"]*\b(mermaid|glightbox|pyodide)\b')
FOREIGN = re.compile(r"""<(?:script|link|img|iframe|source|video)\b[^>]*?\b(?:src|href|srcset)=["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def site() -> Path:
    """The built site."""
    done = subprocess.run(
        [sys.executable, "-m", "deploy.site.build"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build" / "site" / "html"


@pytest.mark.slow
def test_site_has_every_page(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not (site / page).is_file()} == set()
    assert (site / "reference" / "chart.html").is_file()
    assert (site / "files" / "deploy" / "nginx" / "taugate.conf").is_file()
    assert 'id="taugate.retrieval.retriever.Retriever.search"' in (site / "reference" / "python.html").read_text(
        "utf-8"
    )
    index = (site / "search.json").read_text(encoding="utf-8")
    assert {page for page in ("glossary.html", "how-to/labels.html", "settings.html") if page not in index} == set()


def test_navigation_has_at_most_seven_entries() -> None:
    assert len(build.read_configuration()["nav"]) <= 7


def test_address_of_moved_page_leads_to_new_one(site: Path) -> None:
    text = (site / "how-to" / "judge.html").read_text(encoding="utf-8")
    assert 'href="labels.html#judge-results"' in text
    assert {page for page in build.moved() if not (site / page).with_suffix(".html").is_file()} == set()


@pytest.mark.parametrize("new", ["gone.md", "here.md#nowhere"])
def test_moved_page_needs_an_address(new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.html").write_text('<h1 id="here">Here</h1>', encoding="utf-8")
    monkeypatch.setattr(build, "moved", lambda: {"old.md": new})
    with pytest.raises(build.SiteError, match=r"old\.md leads to .+, which does not exist"):
        build.write_redirects(tmp_path)


def test_language_models_get_list_and_text_of_the_guide(site: Path) -> None:
    listed = re.findall(r"^- \[.+\]\((.+?)\)", (site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert "how-to/labels.md" in listed
    full = (site / "llms-full.txt").read_text(encoding="utf-8")
    guide = [page for page in listed if not page.startswith(("benchmarks/", "reference/changelog.md"))]
    assert [page for page in guide if f"<!-- {page} -->" not in full or not (site / page).is_file()] == []


def test_pages_name_no_other_host(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    styles = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.css")}
    assert len(pages) > 40
    assert [path for path, text in pages.items() if FOREIGN.search(text) or LOADERS.search(text)] == []
    assert [path for path, text in styles.items() if re.search(r"(@import|url\()\s*[\"']?(https?:)?//", text)] == []


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The site on a loopback port."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("page", ["index.html", "benchmarks/drift.html", "reference/python.html"])
@pytest.mark.slow
def test_browser_contacts_no_other_host(served: str, page: str, tmp_path: Path) -> None:
    log = tmp_path / "network.json"
    command = [require(*CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command.append("--disable-features=AutofillServerCommunication")  # a request to Google about the search form
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}", "--dump-dom", f"{served}/{page}"]
    subprocess.run(command, capture_output=True, check=True, timeout=120)
    hosts = set(re.findall(r'"url":"(https?://[^/"]+)', log.read_text(encoding="utf-8")))
    assert served in hosts
    assert {host for host in hosts if host != served and not _is_of_chromium(host)} == set()


def _is_of_chromium(host: str) -> bool:
    """Return whether Chromium itself contacts a host when it starts, such as its update service."""
    pattern = r"//((clients\d|accounts)\.google|(update|optimizationguide-pa)\.googleapis|redirector\.gvt1)\.com$"
    return re.search(pattern, host) is not None


def test_page_outside_navigation_is_refused() -> None:
    with pytest.raises(build.SiteError, match=r"lost\.md: is not in the navigation"):
        build.check_navigation({"index.md", "lost.md"}, ["index.md"])
    with pytest.raises(build.SiteError, match=r"gone\.md: is in the navigation, but does not exist"):
        build.check_navigation({"index.md"}, ["index.md", "gone.md"])


def test_links_outside_docs_are_rewritten(tmp_path: Path) -> None:
    text = "[chart](../helm/taugate/README.md#install) [a](access.md#keys) [conf](../deploy/nginx/taugate.conf) [x](#y)"
    rewritten = build.rewrite_links(text, "docs/operations.md", "operations.md", tmp_path)
    assert rewritten == (
        "[chart](reference/chart.md#install) [a](access.md#keys) [conf](files/deploy/nginx/taugate.conf) [x](#y)"
    )
    assert (tmp_path / "files" / "deploy" / "nginx" / "taugate.conf").is_file()


def test_link_to_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(build.SiteError, match=r"docs/api\.md: links to nowhere\.md"):
        build.rewrite_links("[x](nowhere.md)", "docs/api.md", "api.md", tmp_path)


def test_link_to_missing_anchor_fails_build(site: Path, tmp_path: Path) -> None:
    """Zensical checks anchors, here those of a small site."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text("# One\n\n[x](#nowhere)\n", encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: One\ndocs_dir: pages\nvalidation: {invalid_link_anchors: true}\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "anchor does not exist" in done.stdout + done.stderr


def test_benchmark_pages_have_plots(site: Path) -> None:
    for name in ("benchmarks/serving", "benchmarks/drift", "benchmarks/decisions"):
        assert (site / f"{name}.html").read_text(encoding="utf-8").count('<figure class="plot"') == 1


def test_plot_needs_table_and_draws_each_series() -> None:
    table = "| clients | service | replies/s | p50 |\n| --- | --- | --- | --- |\n"
    rows = "".join(f"| {n} | {name} | {rate} | 1 |\n" for name in ("a", "b") for n, rate in ((1, "10"), (4, "1,200")))
    page = with_plots(f"# Serving\n\n{table}{rows}\nafter\n", "benchmarks/serving.md")
    assert page.count('<path class="line plot-') == 2
    assert page.endswith(f"{table}{rows}\nafter\n")
    with pytest.raises(PlotError, match=r"has no table of clients, service, replies/s"):
        with_plots("# Serving\n", "benchmarks/serving.md")
