"""Web pages: the complete content reaches the document, without navigation, and lost words are counted."""

import random
import re

import pytest

from import_tests.kept import complete
from taugate.data.parsed import UnreadableFile
from taugate_import.html import decode_page, parse_html
from taugate_import.word_share import share_kept

PROSE = "The pump starts when the pressure falls below two bars, and it stops at four. " * 6


def text_of(body: str) -> str:
    """Return the text of a page, after a check that it keeps all words."""
    return (
        complete(parse_html(f"<!DOCTYPE html><html><head><title>T</title></head><body>{body}</body></html>".encode()))
        .documents[0]
        .text
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<h3><button>How?</button></h3><div hidden>So.</div>", "### How?\n\nSo."),
        ("<p>a</p><div aria-hidden=true style='display:none'>b</div>", "a\n\nb"),
        ("<details><summary>How?</summary><p>So.</p></details>", "How?\n\nSo."),
        ("<form><div><h1>Orders</h1><p>All of it.</p></div></form>", "# Orders\n\nAll of it."),
        ("<article><p>one</p></article><article><p>two</p></article>", "one\n\ntwo"),
        ("<main></main><div><p>beside</p></div>", "beside"),
        ("<main><p>a</p></main><section><p>b</p></section>", "a\n\nb"),
        ("<main><aside class=warning>Hot!</aside></main>", "Hot!"),
        ("<dl><dt>Bar</dt><dd>A unit</dd></dl>", "Bar\n: A unit"),
        ("<input type=button value='How to pay?'><textarea>By card</textarea>", "How to pay?\n\n```\nBy card\n```"),
        ("<input value='Valve 7'><input type=hidden value=token>", "Valve 7"),
        ("<figure><img alt='Wiring'><figcaption>Figure 1</figcaption></figure>", "Wiring\n\nFigure 1"),
        ("<iframe srcdoc='&lt;p&gt;in it&lt;/p&gt;'></iframe>", "in it"),
        ("<template shadowrootmode=open><p>shadow</p></template>", "shadow"),
        ("<noscript>fallback</noscript>", "fallback"),
        ("<p>one</p></body></html><p>after the end</p>", "one\n\nafter the end"),
        ("<p><![CDATA[a < b]]></p>", "a < b"),
        ("<header><h1>Pump</h1><p>lead</p></header><p>text</p>", "# Pump\n\nlead\n\ntext"),
        ("<ul class='nav nav-tabs'><li><a href='#a'>Linux</a><li><a href='#b'>Mac</a><li><a href='#c'>BSD</a></ul>"
         "<div id=a>apt</div>", "* Linux\n* Mac\n* BSD\n\napt"),
        ("<ol><li>one<li>two</ol>", "* one\n* two"),
    ],
)  # fmt: skip
def test_hidden_text_is_kept(body: str, text: str) -> None:
    assert text_of(body) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>a < b, &lt;your name&gt;, List&lt;T&gt;</p>", "a < b, <your name>, List<T>"),
        ("<p>&lt;T&gt;</p>", "<T>"),
        ("<p>Ask John <john@example.com> today</p>", "Ask John <john@example.com> today"),
        ("<p>&lt;!-- a note --&gt;</p>", "<!-- a note -->"),
        ("<p>[x]: http://a.b 'words'</p>", "[x]: http://a.b 'words'"),
        ("<pre>&lt;p&gt;code&lt;/p&gt;\n```\n  b</pre>", "````\n<p>code</p>\n```\n  b\n````"),
        ("<hr><p>title: x</p><hr><p>rest</p>", "title: x\n\nrest"),
    ],
)
def test_text_resembling_markup_is_kept(body: str, text: str) -> None:
    assert text_of(body) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<span>wa</span><span>ter</span> <b>bo</b>ld H<sub>2</sub>O fo<wbr>ur o&shy;k", "water bold H2O four ok"),
        ("<div>a</div><div>b</div>", "a\n\nb"),
        ("<x-card>a</x-card><x-card>b</x-card>", "a b"),
        ("<p>It costs <del>5</del><ins>6</ins> euro</p>", "It costs ~~5~~ 6 euro"),
        ("<table><tr><td>a<br>b</td><td>c</td></tr></table>", "|  |  |\n| --- | --- |\n| a b | c |"),
        ("<p><ruby>漢<rt>かん</rt>字<rt>じ</rt></ruby>です</p>", "漢字(かんじ)です"),
        ("<math><mi>sin</mi><mi>x</mi></math>", "sin x"),
        ("<svg><title>Chart</title><text>flow</text></svg>", "Chart\n\nflow"),
    ],
)  # fmt: skip
def test_words_divided_as_in_browser(body: str, text: str) -> None:
    assert text_of(body) == text


LINKS = "<li><a href=a>One</a></li><li><a href=b>Two</a></li><li><a href=c>Three</a></li>"


@pytest.mark.parametrize(
    "menu",
    [
        f"<nav><ul>{LINKS}</ul></nav>",
        f"<div role=navigation><ul>{LINKS}</ul></div>",
        f"<div class='left-menu'><ul>{LINKS}</ul></div>",
        f"<aside><ul>{LINKS}</ul></aside>",
        f"<ul>{LINKS}</ul>",
        "<header>One, Two and Three</header>",
        "<footer>One, Two and Three</footer>",
    ],
)
def test_navigation_is_left_out(menu: str) -> None:
    assert text_of(f"{menu}<h1>Pump</h1><p>{PROSE}</p>") == f"# Pump\n\n{PROSE.strip()}"


@pytest.mark.parametrize(
    "body",
    [
        f"<h1>Manuals</h1><p>{PROSE}</p><ul>{LINKS}</ul>",
        f"<h1>A</h1><p>{PROSE}</p><table><td><a href=a>One</a><td><a href=b>Two</a><td><a href=c>Three</a></table>",
        f"<nav><ul>{LINKS}</ul></nav>",
        f"<nav><h1>One Two Three</h1><p>{PROSE}</p></nav>",
        f"<header><p>One Two Three {PROSE}{PROSE}</p></header>",
        f"<div class=toc><ul>{LINKS}</ul></div><p>{PROSE}</p>",
        f"<h1>A</h1><ul class=menu>{LINKS.replace('</a>', ' of the parts</a>')}</ul><p>{PROSE}</p>",
    ],
)  # fmt: skip
def test_content_links_are_kept(body: str) -> None:
    assert {"One", "Two", "Three"} <= set(re.findall(r"\w+", text_of(body)))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>shown</p><template><p>{{ row.hidden }}</p><template>7</template></template>", "shown"),
        ("<p>shown</p><template><p>rest of a damaged page</p>", "shown\n\nrest of a damaged page"),
    ],
)
def test_template_is_left_out_if_closed(body: str, text: str) -> None:
    assert text_of(body) == text


def test_layout_table_becomes_its_parts() -> None:
    inner = "<table><tr><th>a</th></tr><tr><td>1</td></tr></table>"
    assert (
        text_of(f"<table><tr><td><h1>Pump</h1></td><td>{inner}</td></tr></table>") == "# Pump\n\n| a |\n| --- |\n| 1 |"
    )


def test_deeply_nested_page_is_refused() -> None:
    with pytest.raises(UnreadableFile, match="nested too deeply"):
        parse_html(b"<div>" * 300 + b"x")


_DAMAGES = {
    "cut": lambda rng, page: page[: rng.randrange(len(page) // 4, len(page))],
    "gap": lambda rng, page: page[: (at := rng.randrange(len(page)))] + page[at + rng.randrange(1, 200) :],
    **{
        f"no {sign}": lambda rng, page, sign=sign: without_some(rng, page, sign)
        for sign in ('"', "<", ">", "-->", "</script>", "</p>", "</div>", "<li>", "</header>", "</nav>", "</title>")
    },
}


def without_some(rng: random.Random, page: str, sign: str) -> str:
    places = [match.start() for match in re.finditer(re.escape(sign), page)]
    for at in sorted(rng.sample(places, min(len(places), rng.randrange(1, 4))), reverse=True):
        page = page[:at] + page[at + len(sign) :]
    return page


def test_damaged_pages_report_lost_words() -> None:
    """The page's words are numbered, to distinguish them from its markup without parsing."""
    numbers = (f"w{number:04}" for number in range(10_000))
    paragraphs = "".join(
        f'<div class="part" id="p{part}"><h2>{next(numbers)}</h2>'
        f'<p class="a b">{" ".join(next(numbers) for _ in range(12))} <a href="/x?a=1">{next(numbers)}</a></p>'
        f"<ul><li>{next(numbers)}<li>{next(numbers)}</ul><!-- a comment --><script>var a = 1;</script></div>"
        for part in range(12)
    )
    page = (
        f"<!DOCTYPE html><html><head><title>T</title></head><body><header><nav>Home</nav></header>{paragraphs}</body>"
    )
    silent = []
    for seed in range(200):
        rng = random.Random(seed)  # noqa: S311 (no secret is made of it)
        kind = rng.choice(sorted(_DAMAGES))
        damaged = _DAMAGES[kind](rng, page)
        file = parse_html(damaged.encode())
        there = set(re.findall(r"w\d{4}", damaged))
        lost = there - set(re.findall(r"w\d{4}", file.documents[0].text + file.documents[0].title))
        if len(lost) > 0.02 * len(there) and share_kept(file.source_text, file.documents, file.left_out) >= 0.98:
            silent.append((seed, kind, len(lost)))
    assert silent == []


@pytest.mark.parametrize("holder", ["nav", "header", "footer"])
@pytest.mark.parametrize(
    "question",
    [
        "<details><summary>How do I reset it?</summary><p>Hold the green key.</p></details>",
        "<button>How do I reset it?</button><div>Hold the green key.</div>",
        "<h3><button>Reset</button></h3><div hidden>Hold the green key.</div>",
        "<dl><dt>How do I reset it?</dt><dd>Hold the green key.</dd></dl>",
        "<div><p><span role=button>How do I reset it?</span></p><div>Hold the green key.</div></div>",
        "<input type=button value='How do I reset it?'><div hidden>Hold the green key.</div>",
    ],
)
def test_banner_questions_kept_without_menus(holder: str, question: str) -> None:
    menu = f"<button>Products</button><ul hidden>{LINKS}</ul><details><summary>All</summary>{LINKS}</details>"
    remainder = f"<h1>Pump</h1><p>{PROSE}</p>"
    assert "Hold the green key." in text_of(f"<{holder}>{question}</{holder}>{remainder}")
    assert text_of(f"<{holder}>{menu}</{holder}>{remainder}") == f"# Pump\n\n{PROSE.strip()}"


def page(label: str, text: str, encoding: str) -> bytes:
    return f"<html><head><meta charset='{label}'></head><body>".encode() + text.encode(encoding)


@pytest.mark.parametrize(
    ("label", "text", "encoding"),
    [
        ("gb2312", "水泵镕", "gbk"),
        ("gbk", "㐀", "gb18030"),
        ("shift_jis", "①番の弁", "cp932"),
        ("x-sjis", "ポンプ", "cp932"),
        ("euc-kr", "똠방각하", "cp949"),
        ("ks_c_5601-1987", "펌프", "cp949"),
        ("big5", "香港嘅泵", "big5hkscs"),
        ("iso-8859-1", "“5 €” – that’s", "cp1252"),
        ("us-ascii", "Größe", "cp1252"),
        ("iso-8859-9", "şıĞ’", "cp1254"),
        ("iso-8859-8-i", "משאבה", "iso8859-8"),
        ("tis-620", "ปั๊ม", "cp874"),
        ("euc-jp", "ポンプ", "euc_jp"),
        ("iso-2022-jp", "ポンプの弁", "iso2022_jp"),
        ("iso-2022-kr", "펌프", "iso2022_kr"),
        ("utf-16", "Größe", "utf-8"),
        ("x-user-defined", "Größe", "cp1252"),
        ("koi8-u", "насос їх", "koi8-u"),
        ("macintosh", "Größe", "mac-roman"),
        ("ibm850", "Größe", "cp850"),
    ],
)
def test_encoding_labels_follow_the_standard(label: str, text: str, encoding: str) -> None:
    decoded = decode_page(page(label, text, encoding))
    assert decoded.text.endswith(text) and decoded.notes == ()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"<?xml version='1.0' encoding='iso-8859-2'?><p>" + "pompę".encode("iso8859-2"), "pompę"),
        (b"<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>" + "насос".encode("koi8-r"), "насос"),
        (b"<!-- <meta charset=utf-16> --><meta charset='windows-1251'>" + "насос".encode("cp1251"), "насос"),
        (b"<meta name=description content='charset=koi8-r'><meta charset=utf-8>" + "Größe".encode(), "Größe"),
        ("\ufeff<meta charset=iso-8859-1>Größe".encode(), "Größe"),
        ("<meta charset=utf-8>Größe".encode("utf-16"), "Größe"),
        (page("euc-jp", "", "ascii") + b"\xad\xa1", "①"),
        (page("gbk", "", "ascii") + b"\x80", "€"),
        (page("big5", "", "ascii") + b"\xa3\xe1", "€"),
    ],
)  # fmt: skip
def test_byte_order_mark_overrides_label(raw: bytes, text: str) -> None:
    decoded = decode_page(raw)
    assert decoded.text.endswith(text) and not decoded.text.startswith("\ufeff") and decoded.notes == ()


@pytest.mark.parametrize(
    ("raw", "text", "note"),
    [
        ("<p>Die Größe der Tür".encode("cp1252"), "Größe der Tür", "is read as windows-1252"),
        ("<p>насос начинает работать".encode("cp1251"), "насос начинает", "is read as windows-1251"),
        (page("us-ascii", "in the café", "utf-8"), "café", "is labelled as us-ascii but read as utf-8"),
        (page("utf-8", "Die Größe der Tür", "cp1252"), "Größe", "is labelled as utf-8 but read as windows-1252"),
        (page("utf-8", "Größe € Tür", "utf-8") + b" caf\xe9 \xe2\x80", "Größe € Tür café \ufffd",
         "is read as utf-8, and invalid bytes as windows-1252"),
    ],
)  # fmt: skip
def test_guessed_encoding_is_noted(raw: bytes, text: str, note: str) -> None:
    decoded = decode_page(raw)
    assert text in decoded.text and decoded.notes == (note,)


def test_invalid_byte_costs_one_character() -> None:
    for label, encoding in (("gb2312", "gbk"), ("shift_jis", "cp932"), ("euc-kr", "cp949"), ("big5", "big5")):
        raw = page(label, "<p>", "ascii") + b"\xff</p><p>" + "水水".encode(encoding) + b"</p>"
        text = decode_page(raw).text
        assert "</p><p>水水</p>" in text and "\ufffd" in text
