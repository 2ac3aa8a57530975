"""Writes the tables of docs/settings.md from the settings: `python -m deploy.settings_page` (`make settings`)."""

from pathlib import Path

from taugate.service.settings import VARIABLES, Settings, Variable

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"

BEGIN, END = "<!-- settings: make settings -->", "<!-- end of settings -->"


def page(before: str) -> str:
    """Return a page with current tables between its two marks; raises ValueError if a mark is missing."""
    head, old_tables_and_tail = before.split(BEGIN)
    _, tail = old_tables_and_tail.split(END)
    return f"{head}{BEGIN}\n\n{tables()}\n{END}{tail}"


def tables() -> str:
    """Return the title and table of every group of settings."""
    return "\n".join(_table(group) for group in Settings.groups())


def _table(group: str) -> str:
    """Return the title of a group, its description, and a row for each variable."""
    model = Settings.groups()[group]
    rows = [_row(variable) for variable in VARIABLES.values() if variable.group == group]
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
    """Return the row of a variable: name, default, and description with its options and older names."""
    older = "".join(f"; older name: `TAUGATE_{name.upper()}`" for name in variable.names[1:])
    options = "".join(
        f"<br>`{key}` ({option.default}): {option.description}" for key, option in variable.options.items()
    )
    return f"| `{variable.name}` | {variable.default} | {variable.description}{older}{options} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
