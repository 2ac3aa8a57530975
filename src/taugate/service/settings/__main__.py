"""The tables of docs/settings.md: `python -m taugate.service.settings docs/settings.md` writes them anew."""

import sys
from pathlib import Path

from taugate.service.settings.settings import VARIABLES, Settings, Variable

BEGIN, END = "<!-- settings: make settings -->", "<!-- end of settings -->"


def page(before: str) -> str:
    """The page with the tables of all settings between its two marks.

    Args:
        before: The page as it is.

    Raises:
        ValueError: Where a mark is missing.
    """
    head, rest = before.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{tables()}\n{END}{tail}"


def tables() -> str:
    """A table for each group of settings, below its title."""
    return "\n".join(_table(group) for group in Settings.groups())


def _table(group: str) -> str:
    """One group: its title, what it is about, and a row for each variable."""
    model = Settings.groups()[group]
    rows = [_row(each) for each in VARIABLES.values() if each.group == group]
    return "\n".join(
        [
            f"## {model.model_config.get('title')}",
            "",
            model.__doc__ or "",
            "",
            "| variable | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _row(variable: Variable) -> str:
    """The variable, its default, and what it means, with its older names."""
    older = "".join(f"; older name: `TAUGATE_{name.upper()}`" for name in variable.names[1:])
    return f"| `{variable.name}` | {variable.default} | {variable.info.description}{older} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
