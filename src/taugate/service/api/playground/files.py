"""The files of the page, and the headers that are sent with each of them."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal

from taugate.retrieval.policy.policy import POLICIES

# Nothing is loaded from other hosts, no inline script runs, and no other page may frame this one.
PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_MODE = b'data-mode="%s"'  # of the page's body, for its style and script
# The parts of the page's script, in order: a part uses declarations of earlier parts, and the last one starts the page.
_SCRIPT = (
    *("computing", "elements", "markdown", "service", "asking", "results", "threshold", "questions", "new_questions"),
    *("panels", "start", "judging"),
)
_FILES = {
    "": ("text/html", ["app.html"]),
    "playground/app.css": ("text/css", ["app.css"]),
    "playground/app.js": ("text/javascript", [f"script/{part}.js" for part in _SCRIPT]),
}


def _policies() -> bytes:
    """Write what the script needs of each kind of policy: its scale, the span of τ, and what it compares with τ."""
    kinds = (
        f'{kind}: {{scale: "{score.scale}", span: {[*score.span]}, of: (score, relevance, best) => {score.script}}}'
        for kind, score in POLICIES.items()
    )
    return f"const POLICIES = {{{', '.join(kinds)}}};\n".encode()


@dataclass(frozen=True)
class PageFile:
    """A file of the page: its content, its media type with the charset, and a hash of the content, in quotes."""

    content: bytes
    media_type: str
    etag: str


def page_files(mode: Literal["playground", "judge"] = "playground") -> dict[str, PageFile]:
    """Read the files of the page, by path; in the mode "judge" for `taugate judge`.

    The page itself has the path "", and links to the other two.
    """
    folder, pages = files("taugate.service.api.playground"), {}
    for path, (media_type, sources) in _FILES.items():
        content = b"\n".join(folder.joinpath(source).read_bytes() for source in sources)
        if path.endswith(".js"):
            content = _policies() + content
        if not path:
            content = content.replace(_MODE % b"playground", _MODE % mode.encode())
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        pages[path] = PageFile(content, f"{media_type}; charset=utf-8", etag)
    return pages
