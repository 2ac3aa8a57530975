"""Pages as their generators write them, around a content that is known: frames, menus and the markup of each part."""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.checkout import ROOT


@dataclass(frozen=True)
class Part:
    """A part of the content: plain words each."""

    heading: str
    prose: str
    items: Sequence[str]
    cells: Sequence[str]
    code: str
    note: str

    @property
    def words(self) -> str:
        """All of its words."""
        return " ".join([self.heading, self.prose, *self.items, *self.cells, self.code, self.note])


@dataclass(frozen=True)
class Generator:
    """How a generator writes a page.

    Attributes:
        page: The frame, with {content}.
        part: The markup of a part, with {heading}, {prose}, {items}, {table}, {code} and {note}.
        item: Of its lists and tables.
        row: Of its lists and tables.
        cell: Of its lists and tables.
        separator: Between parts.
    """

    page: str
    part: str
    item: str = "<li>{}</li>"
    row: str = "<tr>{}</tr>"
    cell: str = "<td>{}</td>"
    separator: str = "\n"

    def write(self, parts: Sequence[Part]) -> str:
        """Return the page with this content."""
        return self.page.replace("{content}", self.separator.join(self._part(each) for each in parts))

    def _part(self, part: Part) -> str:
        rows = (part.cells[at : at + 2] for at in range(0, len(part.cells), 2))
        values = {
            "heading": part.heading,
            "prose": part.prose,
            "items": "".join(self.item.format(html.escape(each)) for each in part.items),
            "table": "".join(
                self.row.format("".join(self.cell.format(html.escape(each)) for each in row)) for row in rows
            ),
            "code": html.escape(part.code),
            "note": part.note,
            "id": re.sub(r"\W+", "-", part.heading.lower()),
        }
        return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], self.part)


def content(number: int, parts: int = 5) -> list[Part]:
    """Return a content of this repository's own prose, another for each number."""
    text = " ".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    words = re.findall(r"[A-Za-z]{2,}", text)
    at = number * 997

    def take(count: int) -> str:
        nonlocal at
        at += count
        return " ".join(words[(at - count + each) % len(words)] for each in range(count))

    return [
        Part(
            take(5), take(50), [take(7) for _ in range(3)], [take(3) for _ in range(6)],
            f"if {take(1)} < limit: call('<{take(1)}>')", take(12),
        )
        for _ in range(parts)
    ]  # fmt: skip


_LINKS = "".join(
    f'<li><a href="/{name.lower()}">{name}</a></li>' for name in ("Home", "Products", "Pricing", "Contact")
)
_DEEP = "".join(
    f'<li class="toctree-l1"><a class="reference internal" href="{n}.html">Chapter {n}</a></li>' for n in range(20)
)
_CODE = '<div class="highlight"><pre><span></span><code>{code}</code></pre></div>'
_PLAIN = (
    f"<h2>{{heading}}</h2><p>{{prose}}</p><ul>{{items}}</ul><table>{{table}}</table>{_CODE}<p><em>{{note}}</em></p>"
)


def _page(body: str, head: str = "") -> str:
    return f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Page</title>{head}</head>{body}</html>'


GENERATORS: Mapping[str, Generator] = {
    "MediaWiki": Generator(
        _page(
            '<body class="mediawiki"><div id="mw-page-base" class="noprint"></div><div id="content" class="mw-body" role="main">'
            '<a id="top"></a><h1 id="firstHeading" class="firstHeading">Pump</h1><div id="bodyContent"><div id="mw-content-text">'
            '<div class="mw-parser-output"><table class="infobox"><tr><th>Type</th><td>Pump</td></tr></table>'
            f'<div id="toc" class="toc" role="navigation"><ul>{_DEEP}</ul></div>{{content}}</div></div></div></div>'
            '<div id="mw-navigation"><div id="mw-panel"><div class="portal" role="navigation" id="p-navigation">'
            f'<ul>{_LINKS}</ul></div></div></div><div id="footer" role="contentinfo"><ul><li>Edited in 2024</li></ul></div></body>'
        ),
        '<h2><span class="mw-headline" id="{id}">{heading}</span><span class="mw-editsection">[<a href="?edit">edit</a>]</span>'
        '</h2><p>{prose}</p><ul>{items}</ul><table class="wikitable"><tbody>{table}</tbody></table><pre>{code}</pre>'
        '<div class="hatnote">{note}</div>',
    ),
    "Sphinx (Read the Docs)": Generator(
        _page(
            '<body class="wy-body-for-nav"><div class="wy-grid-for-nav"><nav data-toggle="wy-nav-shift" class="wy-nav-side">'
            f'<div class="wy-menu wy-menu-vertical" role="navigation"><ul>{_DEEP}</ul></div></nav>'
            '<section class="wy-nav-content-wrap"><div class="wy-nav-content"><div class="rst-content"><div role="navigation" '
            f'aria-label="Page navigation"><ul class="wy-breadcrumbs">{_LINKS}</ul></div><div role="main" class="document">'
            '<div itemprop="articleBody"><section id="a"><h1>Pump<a class="headerlink" href="#a">¶</a></h1>{content}</section>'
            "</div></div><footer><p>Copyright 2024.</p></footer></div></div></section></div></body>"
        ),
        '<section id="{id}"><h2>{heading}<a class="headerlink" href="#{id}" title="Permalink">¶</a></h2><p>{prose}</p>'
        '<ul class="simple">{items}</ul><table class="docutils"><tbody>{table}</tbody></table><div class="highlight-python">'
        '<div class="highlight"><pre><span></span>{code}</pre></div></div><aside class="admonition note"><p '
        'class="admonition-title">Note</p><p>{note}</p></aside></section>',
        item="<li><p>{}</p></li>",
        cell="<td><p>{}</p></td>",
    ),
    "Sphinx (alabaster)": Generator(
        _page(
            '<body><div class="document"><div class="documentwrapper"><div class="bodywrapper"><div class="body" role="main">'
            '{content}</div></div></div><div class="sphinxsidebar" role="navigation"><div class="sphinxsidebarwrapper">'
            f'<ul>{_DEEP}</ul></div></div></div><div class="footer">Powered by Sphinx</div></body>'
        ),
        f'<h2>{{heading}}</h2><p>{{prose}}</p><ul>{{items}}</ul><table class="docutils">{{table}}</table>{_CODE}'
        '<dl class="py function"><dt class="sig">pump(<em>bar</em>)</dt><dd><p>{note}</p></dd></dl>',
    ),
    "Docusaurus": Generator(
        _page(
            f'<body><div id="__docusaurus"><nav class="navbar"><ul>{_LINKS}</ul></nav><div class="main-wrapper"><aside '
            f'class="theme-doc-sidebar-container"><nav class="menu"><ul>{_DEEP}</ul></nav></aside><main><article><div '
            'class="theme-doc-markdown markdown"><header><h1>Pump</h1></header>{content}</div></article><nav class="pagination-nav">'
            '<a href="a">Next</a></nav></main></div><footer class="footer">Copyright</footer></div></body>'
        ),
        '<h2 class="anchor" id="{id}">{heading}<a href="#{id}" class="hash-link" aria-label="Direct link">\u200b</a></h2>'
        '<p>{prose}</p><div class="tabs-container"><ul role="tablist" class="tabs">{items}</ul><div role="tabpanel" hidden>'
        '<table>{table}</table></div></div><div class="codeBlockContainer"><pre class="prism-code"><code>{code}</code></pre></div>'
        '<div class="theme-admonition alert"><div class="admonitionContent">{note}</div></div>',
        item='<li role="tab" class="tabs__item">{}</li>',
    ),
    "MkDocs Material": Generator(
        _page(
            f'<body><header class="md-header"><nav class="md-header__inner"><ul>{_LINKS}</ul></nav></header><div '
            'class="md-container"><nav class="md-tabs"><ul class="md-tabs__list"><li><a href="/">Start</a></li></ul></nav><main '
            f'class="md-main"><div class="md-sidebar"><nav class="md-nav"><ul>{_DEEP}</ul></nav></div><div class="md-content">'
            '<article class="md-content__inner md-typeset">{content}</article></div></main><footer class="md-footer">Made with'
            "</footer></div></body>"
        ),
        f'<h2 id="{{id}}">{{heading}}<a class="headerlink" href="#{{id}}">¶</a></h2><p>{{prose}}</p><div class="tabbed-set">'
        f'<div class="tabbed-labels"><label for="a">{{note}}</label></div><div class="tabbed-content"><ul>{{items}}</ul></div></div>'
        f'<div class="md-typeset__table"><table>{{table}}</table></div>{_CODE}',
    ),
    "WordPress": Generator(
        _page(
            f'<body class="blog"><div id="page"><header id="masthead" class="site-header"><nav><ul>{_LINKS}</ul></nav></header>'
            f'<div id="content"><main id="main">{{content}}</main><aside id="secondary" class="widget-area"><ul>{_LINKS}</ul>'
            '</aside></div><footer id="colophon">Proudly powered</footer></div></body>'
        ),
        '<article class="post"><header class="entry-header"><h2 class="entry-title"><a href="/{id}">{heading}</a></h2></header>'
        '<div class="entry-content"><p>{prose}</p><ul class="wp-block-list">{items}</ul><figure class="wp-block-table"><table>'
        '{table}</table><figcaption>{note}</figcaption></figure><pre class="wp-block-code"><code>{code}</code></pre></div></article>',
    ),
    "Confluence": Generator(
        _page(
            '<body><div id="page"><div id="header-precursor"></div><header id="header" role="banner"><ul>'
            f'{_LINKS}</ul></header><div id="main"><div id="main-content" class="wiki-content">{{content}}</div></div></div></body>'
        ),
        '<h2 id="Pump-{id}">{heading}</h2><p>{prose}</p><div class="expand-container"><button class="expand-control">{note}</button>'
        '<div class="expand-content expand-hidden" style="display:none" aria-hidden="true"><ul>{items}</ul></div></div><div '
        'class="table-wrap"><table class="confluenceTable"><tbody>{table}</tbody></table></div><div class="code panel"><pre>{code}'
        "</pre></div>",
        cell='<td class="confluenceTd"><div class="content-wrapper"><p>{}</p></div></td>',
    ),
    "ASP.NET WebForms": Generator(
        _page(
            '<body><form name="aspnetForm" method="post" action="./a.aspx" id="aspnetForm"><div><input type="hidden" '
            'name="__VIEWSTATE" value="dDwtMTA7"></div><script>//<![CDATA[\nvar a = 1 < 2;\n//]]></script><table width="100%"><tr>'
            f'<td><div id="menu" class="AspNet-Menu"><ul>{_LINKS}</ul></div></td><td><span id="ctl00_Main"><h1>Pump</h1>{{content}}'
            "</span></td></tr></table></form></body>"
        ),
        '<h2>{heading}</h2><p><span id="ctl00_lbl">{prose}</span></p><ul>{items}</ul><table id="ctl00_grid">{table}</table><pre>'
        '{code}</pre><fieldset><legend>Hint</legend><label>{note}</label></fieldset>',
    ),
    "Hugo": Generator(
        _page(
            f'<body><header><nav><ul>{_LINKS}</ul></nav></header><main><article>{{content}}</article></main><footer>© 2024</footer>'
            "</body>"
        ),
        '<h2 id="{id}">{heading}</h2><p>{prose}</p><ol>{items}</ol><table>{table}</table><div class="highlight"><table><tr><td>'
        "<pre><code>1</code></pre></td><td><pre><code>{code}</code></pre></td></tr></table></div><details><summary>More</summary>"
        "{note}</details>",
    ),
    "Jekyll": Generator(
        _page(f'<body><div class="sidebar"><ul>{_LINKS}</ul></div><div class="content container">{{content}}</div></body>'),
        '<div class="post"><h1 class="post-title">{heading}</h1><p>{prose}</p><ul>{items}</ul><table>{table}</table>'
        '<div class="language-sh highlighter-rouge"><pre class="highlight"><code>{code}</code></pre></div><blockquote>{note}'
        "</blockquote></div>",
    ),
    "GitBook": Generator(
        _page(
            f'<body><div class="scroll-nojump"><header><nav><ul>{_LINKS}</ul></nav></header><aside data-testid="table-of-contents">'
            f'<ul>{_DEEP}</ul></aside><main class="flex-1">{{content}}</main></div></body>'
        ),
        '<div class="grid"><h2><div class="inline">{heading}</div></h2></div><p class="mx-auto">{prose}</p><ul>{items}</ul><div '
        'role="table">{table}</div><div class="group/codeblock"><pre><code><span class="highlight-line">{code}</span></code></pre>'
        '</div><div class="hint">{note}</div>',
        row='<div role="row">{}</div>',
        cell='<div role="cell">{}</div>',
    ),
    "Zendesk help center": Generator(
        _page(
            f'<body><header class="header"><nav>{_LINKS}</nav></header><main role="main"><div class="container-divider"></div>'
            '<article class="article"><section class="article-info"><div class="article-body">{content}</div></section></article>'
            '</main><footer class="footer">Help</footer></body>'
        ),
        '<div class="accordion"><h3><button class="accordion__item-title" aria-expanded="false">{heading}</button></h3><div '
        'class="accordion__item-content" hidden><p>{prose}</p><ul>{items}</ul><table>{table}</table><pre>{code}</pre><p>{note}</p>'
        "</div></div>",
    ),
    "SharePoint": Generator(
        _page(
            f'<body><form id="aspnetForm"><div id="suiteBar"><div id="DeltaTopNavigation" role="navigation"><ul>{_LINKS}</ul></div>'
            '</div><div id="contentBox" role="main"><div id="DeltaPlaceHolderMain"><div class="ms-rtestate-field">{content}</div>'
            "</div></div></form></body>"
        ),
        '<h2 class="ms-rteElement-H2">{heading}</h2><div>{prose}<br></div><ul>{items}</ul><table class="ms-rteTable-default">'
        '<tbody>{table}</tbody></table><p>{code}</p><div class="ms-webpart-chrome"><span>{note}</span></div>',
    ),
    "Drupal": Generator(
        _page(
            f'<body><header role="banner"><nav role="navigation"><ul class="menu">{_LINKS}</ul></nav></header><main role="main">'
            '<div class="layout-content"><article class="node node--type-page"><div class="node__content">{content}</div></article>'
            "</div></main></body>"
        ),
        '<div class="field field--label-above"><div class="field__label">{heading}</div><div class="field__item"><p>{prose}</p>'
        '<ul>{items}</ul><table class="views-table">{table}</table><pre>{code}</pre></div></div><div class="messages">{note}</div>',
    ),
    "Doxygen": Generator(
        _page(
            f'<body><div id="top"><div id="titlearea">Pump</div><div id="main-nav"><ul>{_LINKS}</ul></div></div><div class="header">'
            '<div class="headertitle"><div class="title">pump.h</div></div></div><div class="contents">{content}</div></body>'
        ),
        '<h2 class="memtitle">{heading}</h2><div class="memitem"><div class="memproto"><table class="memname"><tr><td>int pump</td>'
        '</tr></table></div><div class="memdoc"><p>{prose}</p><ul>{items}</ul><dl class="section note"><dt>Note</dt><dd>{note}</dd>'
        '</dl><table class="doxtable">{table}</table><div class="fragment"><div class="line">{code}</div></div></div></div>',
    ),
    "Javadoc": Generator(
        _page(
            f'<body><header role="banner"><nav role="navigation"><ul class="navList">{_LINKS}</ul></nav></header><main role="main">'
            "{content}</main></body>"
        ),
        '<section class="detail" id="{id}"><h3>{heading}</h3><div class="member-signature">void pump(List&lt;Bar&gt; bars)</div>'
        '<div class="block">{prose}</div><dl class="notes"><dt>See:</dt><dd><ul class="tag-list">{items}</ul></dd><dt>Throws:</dt>'
        "<dd>{note}</dd></dl><table>{table}</table><pre><code>{code}</code></pre></section>",
        item='<li><a href="a.html"><code>{}</code></a></li>',
    ),
    "Wix": Generator(
        _page('<body><div id="SITE_CONTAINER"><div id="masterPage"><div id="PAGES">{content}</div></div></div></body>'),
        '<div class="comp"><div><div data-testid="richTextElement"><div class="font_2"><span>{heading}</span></div></div></div><div>'
        '<div class="font_8"><span>{prose}</span></div></div><div role="list">{items}</div><div>{table}</div><div>{code}</div>'
        '<button class="more"><span>{note}</span></button></div>',
        item='<div role="listitem">{}</div>',
        row="<div>{}</div>",
        cell="<div>{}</div>",
    ),
    "Word": Generator(
        _page(
            '<body lang=EN-US><div class=WordSection1>{content}</div></body>',
            "<!--[if gte mso 9]><xml><w:WordDocument></w:WordDocument></xml><![endif]--><style><!-- p.MsoNormal {} --></style>",
        ),
        "<h2><a name=x><span lang=EN-US>{heading}<o:p></o:p></span></a></h2><p class=MsoNormal><span lang=EN-US>{prose}<o:p></o:p>"
        "</span></p>{items}<table class=MsoTableGrid>{table}</table><p class=MsoNormal>{code}</p><p class=MsoFootnoteText><a href='#f'>"
        "<sup>[1]</sup></a> {note}</p>",
        item="<p class=MsoListParagraph><![if !supportLists]><span>·</span><![endif]>{}</p>",
        cell="<td><p class=MsoNormal>{}<o:p></o:p></p></td>",
    ),
    "Google Docs": Generator(
        _page('<body class="c12 doc-content">{content}</body>'),
        '<h2 class="c3"><span class="c1">{heading}</span></h2><p class="c2"><span class="c0">{prose}</span></p><ul class="c5 lst-kix">'
        '{items}</ul><table class="c9">{table}</table><p class="c2"><span>{code}</span></p><div><p><a href="#r1">[1]</a><span>{note}'
        "</span></p></div>",
        item='<li class="c2 li-bullet-0"><span class="c0">{}</span></li>',
        cell='<td class="c7"><p><span>{}</span></p></td>',
    ),
    "Discourse": Generator(
        _page(
            f'<body class="crawler"><header><a href="/">Forum</a></header><div id="main-outlet" class="wrap" role="main">{{content}}'
            f'</div><footer class="container"><nav><ul>{_LINKS}</ul></nav></footer></body>'
        ),
        '<div itemprop="comment" class="topic-body crawler-post"><div class="crawler-post-meta"><span class="creator">{heading}</span>'
        '</div><div class="post"><p>{prose}</p><ul>{items}</ul><div class="md-table"><table>{table}</table></div><pre><code>{code}'
        '</code></pre><aside class="quote"><blockquote>{note}</blockquote></aside></div></div>',
    ),
    "Accordion of a blog": Generator(
        _page('<body><main><h1>Help</h1><div class="accordion">{content}</div></main></body>'),
        '<details><summary>{heading}</summary><p>{prose}</p></details><div class="accordion-item"><h2><button type="button" '
        'data-bs-toggle="collapse">{note}</button></h2><div class="accordion-collapse collapse"><ul>{items}</ul><table>{table}</table>'
        "<pre>{code}</pre></div></div>",
    ),
    "Parts of code": Generator(_page("<body>{content}</body>"), _PLAIN),
}  # fmt: skip
