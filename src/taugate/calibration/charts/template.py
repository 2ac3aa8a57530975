"""The template of the report of a release."""

import re
from collections.abc import Callable
from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

from taugate.calibration.charts.numbers import alone, count, estimate, fixed, limits, percent, shift, signed

# Tags and elements whose text is not prose, or an option of a command.
_OPTIONS = re.compile(
    r"(<style.*?</style>|<title.*?</title>|<svg.*?</svg>|<[^>]*>)|(?<![\w-])(--[a-z][\w-]*)", flags=re.DOTALL
)


@cache
def template(package: str, name: str, *filters: Callable[..., object]) -> Template:
    """Load a page's template with the macros, style sheet and number filters that all pages share.

    Values are escaped, because queries and documents are untrusted text.

    Args:
        package: Dotted name of the package that holds the template.
        name: File name of the template.
        filters: Further formats, by the names of the functions.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("taugate.calibration.charts", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = (fixed, percent, count, signed, limits, alone, estimate, shift, *filters)
    environment.filters |= {function.__name__: function for function in formats}
    return environment.get_template(name)


def with_whole_options(html: str) -> str:
    """Mark the options of commands in the text of a page, so that no line breaks within one: --max-loss.

    Tags, style sheets, titles and drawings stay as they are.
    """
    return _OPTIONS.sub(lambda match: match[1] or f'<span class="option">{match[2]}</span>', html)
