"""Write what is made from the values. `make chart` runs it; a test compares."""

from pathlib import Path

from helm.values.write import readme, schema_json, settings_json, values_yaml

CHART = Path(__file__).parents[1] / "taugate"


def generated() -> dict[Path, str]:
    """Every file with its content."""
    page = CHART / "README.md"
    return {
        CHART / "values.yaml": values_yaml(),
        CHART / "values.schema.json": schema_json(),
        CHART / "files" / "settings.json": settings_json(),
        page: readme(page.read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_text(content, encoding="utf-8")
