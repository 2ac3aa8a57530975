"""Text files in legacy encodings that are decoded exactly, by encoding, for the importer and other detectors.

The sentences are those of the translations on this machine (/usr/share/locale), in languages whose own encodings differ.
"""

import gettext
import importlib.util
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.ingestion.plan import ImportPlan
from benchmarks.markdown import Target, share, table, targets
from taugate.ingestion.importers.text_encoding import guess_encoding
from taugate.ingestion.parsed import UnreadableFile

HEADING = "Encodings of text files"
Detector = Callable[[bytes], str]
_CATALOGUES = Path("/usr/share/locale")
_SENTENCES = (1, 6, 100)  # of a file
_FILES = 8  # of each language, encoding and length
_WESTERN = ("cp1252", "iso8859-15", "cp850", "mac-roman")
_CENTRAL = ("cp1250", "iso8859-2", "cp852")
_CYRILLIC = ("cp1251", "koi8-u", "iso8859-5", "cp866")
# Two halves: the detector and its rules were chosen on the first.
_CHOSEN_ON = {
    **dict.fromkeys(("de", "fi", "es", "ca", "is", "gl"), _WESTERN),
    **dict.fromkeys(("pl", "cs", "hr"), _CENTRAL),
    **dict.fromkeys(("ru", "be"), _CYRILLIC),
    **{"lt": ("cp1257",), "el": ("cp1253", "iso8859-7"), "he": ("cp1255",), "ja": ("cp932", "euc_jp", "iso2022_jp")},
    "zh_CN": ("gb18030",),
}
_REPORTED_ON = {
    **dict.fromkeys(("da", "fr", "it", "nl", "pt", "sv", "nb", "eu", "ga", "sq"), _WESTERN),
    **dict.fromkeys(("hu", "sk", "sl", "ro"), _CENTRAL),
    **dict.fromkeys(("uk", "bg", "sr"), _CYRILLIC),
    **{"lv": ("cp1257",), "et": ("cp1257",), "tr": ("cp1254",), "ar": ("cp1256",), "th": ("cp874",), "vi": ("cp1258",)},
    **{"ko": ("cp949",), "zh_TW": ("big5",)},
}


def section(plan: ImportPlan) -> str:
    """Write sentences in every encoding that has their letters, and count the files that are decoded exactly."""
    detectors = {"taugate": lambda raw: guess_encoding(raw).codec, **dict(_detectors())}
    halves = []
    for name, languages in (("chosen on", _CHOSEN_ON), ("reported on", _REPORTED_ON)):
        files = list(_files(languages, random.Random(plan.seed)))  # noqa: S311 (no secret is made of it)
        exact: dict[str, list[int]] = defaultdict(lambda: [0] * len(detectors))
        count: dict[str, int] = defaultdict(int)
        for encoding, text in files:
            raw = text.encode(encoding)
            for key in (encoding, "all"):
                count[key] += 1
                for place, detect in enumerate(detectors.values()):
                    exact[key][place] += _decoded(raw, detect) == text
        halves.append((name, exact, count))
    (_, exact, count) = halves[1]
    figures = [
        Target("files in windows-1252 that are decoded exactly", exact["cp1252"][0] / count["cp1252"], at_least=0.9),
        Target("files in all encodings that are decoded exactly", exact["all"][0] / count["all"], at_least=0.9),
    ]
    tables = [
        f"Languages that the detector was {name}:\n\n"
        + table(
            ["encoding", "files", *detectors],
            [[key, count[key], *(share(each / count[key]) for each in exact[key])] for key in sorted(count)],
        )
        for name, exact, count in halves
    ]
    return (
        f"Files of {', '.join(map(str, _SENTENCES))} sentences of translations, in the encodings that people used for the "
        f"language. Most of what is wrong in windows-1252 is Albanian, which the detector has no model of.\n\n{targets(figures)}\n\n"
        + "\n\n".join(tables)
        + "\n"
    )


def _decoded(raw: bytes, detect: Detector) -> str | None:
    try:
        return raw.decode(detect(raw), "replace")
    except (LookupError, TypeError, AttributeError, UnreadableFile):
        return None


def _files(languages: dict[str, tuple[str, ...]], rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield encodings and texts; each text has a letter beyond ASCII."""
    for language, encodings in languages.items():
        sentences = _sentences(language)
        for encoding in encodings:
            fitting = [sentence for sentence in sentences if _fits(sentence, encoding)]
            for length in _SENTENCES:
                for _ in range(_FILES if len(fitting) >= length else 0):
                    text = "\n".join(rng.sample(fitting, length))
                    if not text.isascii():
                        yield encoding, text


def _fits(text: str, encoding: str) -> bool:
    try:
        return text.encode(encoding).decode(encoding) == text
    except UnicodeError:
        return False


def _sentences(language: str) -> list[str]:
    """Return the lines of a language's translations, 25 letters or longer, 10 in languages without spaces."""
    shortest = 10 if language in {"ja", "ko", "th", "zh_CN", "zh_TW"} else 25
    found: set[str] = set()
    for path in sorted((_CATALOGUES / language / "LC_MESSAGES").glob("*.mo")):
        try:
            with path.open("rb") as file:
                translations = gettext.GNUTranslations(file)
        except UnicodeDecodeError:  # it does not say its encoding
            continue
        catalogue = translations._catalog  # type: ignore[attr-defined]
        lines = (
            line for key, value in catalogue.items() if key and isinstance(value, str) for line in value.split("\n")
        )
        found.update(line.strip() for line in lines if shortest <= len(line.strip()) <= 300 and "%" not in line)
    return sorted(found)


def _detectors() -> Iterator[tuple[str, Detector]]:
    """Yield the detectors that are installed; of these only chardet is a dependency."""
    import chardet

    yield "chardet", lambda raw: str(chardet.detect(raw, prefer_superset=True, compat_names=False)["encoding"])
    if importlib.util.find_spec("charset_normalizer"):
        from charset_normalizer import from_bytes

        yield "charset-normalizer", lambda raw: from_bytes(raw).best().encoding  # type: ignore[union-attr]
    if importlib.util.find_spec("chardetng_py"):
        import chardetng_py

        yield "chardetng", lambda raw: str(chardetng_py.detect(raw))
    if importlib.util.find_spec("cchardet"):
        import cchardet

        yield "faust-cchardet", lambda raw: str(cchardet.detect(raw)["encoding"])
