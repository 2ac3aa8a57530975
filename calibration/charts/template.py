"""The templates of all pages, with one style sheet and one way to write numbers."""

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

from taugate.calibration.charts import numbers


def template(package: str, name: str) -> Template:
    """Load a template of a package, with the macros and the style sheet of this one.

    Everything is escaped: queries and documents are other people's text.

    package: dotted name; name: of the template's file in it.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("taugate.calibration.charts", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "fixed": numbers.fixed,
        "percent": numbers.percent,
        "count": numbers.count,
        "signed": numbers.signed,
        "spread": numbers.spread,
    }
    return environment.get_template(name)
