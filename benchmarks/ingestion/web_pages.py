"""Word recall of web pages by generator, for the importer and for the extractors that are installed beside it."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.ingestion.generators import GENERATORS, content
from benchmarks.ingestion.plan import ImportPlan
from benchmarks.markdown import Target, share, table, targets
from taugate.ingestion.importers.parse import read_file
from taugate.ingestion.importers.word_share import MIN_SHARE_KEPT, count_words

HEADING = "Web pages"
Extractor = Callable[[str], str]


def section(_: ImportPlan) -> str:
    """Write a page as each generator would, and count the words of its content that each extractor keeps."""
    extractors = dict(_extractors())
    rows: list[list[object]] = []
    beside = [0] * (len(extractors) + 1)
    lowest, silent, unknown = 1.0, 0, 0
    for number, (name, generator) in enumerate(GENERATORS.items()):
        parts = content(number)
        page = generator.write(parts)
        words = count_words(part.words for part in parts)
        kept, text = _read(page)
        recall = (words & count_words([text])).total() / words.total()
        silent += recall < MIN_SHARE_KEPT <= kept
        unknown += sum(word not in count_words([page]) for word in count_words([text]))
        lowest = min(lowest, recall)
        others = [count_words([extract(page)]) for extract in extractors.values()]
        rows.append(
            [name, share(recall), share(kept), *(share((words & each).total() / words.total()) for each in others)]
        )
        for place, each in enumerate([count_words([text]), *others]):
            beside[place] += (each - words).total()
    rows.append(["words beside the content", beside[0], "", *beside[1:]])
    figures = [
        Target("lowest recall of a page's content", lowest, at_least=MIN_SHARE_KEPT),
        Target("pages that lose words and are not named", silent, at_most=0),
        Target("words that are not in the page", unknown, at_most=0),
    ]
    return (
        f"{len(GENERATORS)} pages, each as a generator writes it around 555 words that are known. "
        "The share of the content's words that is kept, the share of the page that the import reports, and the words that "
        f"other extractors keep.\n\n{targets(figures)}\n\n"
        f"{table(['generator', 'taugate', 'reported', *extractors], rows)}\n"
    )


def _read(page: str) -> tuple[float, str]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(page, encoding="utf-8")
        file = read_file(path)
    return file.share, "\n".join(f"{document.title}\n{document.text}" for document in file.documents)


def _extractors() -> Iterator[tuple[str, Extractor]]:
    """Yield the extractors that are installed; none of them is a dependency."""
    if importlib.util.find_spec("trafilatura"):
        from trafilatura import extract

        yield (
            "trafilatura",
            lambda page: extract(page, favor_recall=True, include_tables=True, include_comments=True) or "",
        )
    if importlib.util.find_spec("readability"):
        import html_text
        from readability import Document

        yield "readability", lambda page: str(html_text.extract_text(Document(page).summary()))
    if importlib.util.find_spec("resiliparse"):
        from resiliparse.extract.html2text import extract_plain_text

        yield "resiliparse", lambda page: str(extract_plain_text(page, main_content=True))
    if importlib.util.find_spec("inscriptis"):
        from inscriptis import get_text

        yield "inscriptis", lambda page: str(get_text(page))
    if importlib.util.find_spec("html_text"):
        import html_text

        yield "html-text", lambda page: str(html_text.extract_text(page))
