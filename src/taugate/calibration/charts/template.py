"""The templates of the pages: the report of a release, and the replay of a log."""

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

from taugate.calibration.charts.numbers import count, fixed, percent, signed, spread


def template(package: str, name: str) -> Template:
    """Load a page's template, with the macros, the style sheet and the number filters that all pages share.

    Everything that is filled in is escaped: queries and documents are other people's text.

    Args:
        package: Dotted name of the package that holds the template.
        name: Of its file there.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("taugate.calibration.charts", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {each.__name__: each for each in (fixed, percent, count, signed, spread)}
    return environment.get_template(name)
