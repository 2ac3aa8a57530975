"""Writes the files that are generated from the values; run by `make chart`. A test checks that they are up to date."""

from pathlib import Path

from helm.values.write import moved_json, readme, schema_json, settings_json, values_yaml

CHART = Path(__file__).parents[1] / "taugate"


def generated() -> dict[Path, str]:
    """Return the content of all generated files."""
    page = CHART / "README.md"
    return {
        CHART / "values.yaml": values_yaml(),
        CHART / "values.schema.json": schema_json(),
        CHART / "files" / "settings.json": settings_json(),
        CHART / "files" / "moved.json": moved_json(),
        page: readme(page.read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_text(content, encoding="utf-8")
