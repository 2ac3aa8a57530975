"""Writes Grafana's dashboards and alert rules; run by `make dashboards`. A test checks that they are up to date."""

from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.alerts import provisioned
from deploy.grafana.drift import drift
from deploy.grafana.serving import serving
from deploy.grafana.shadow import shadow

HERE = Path(__file__).parent
ALERTS = HERE.parent / "prometheus" / "rules" / "taugate.alerts.yml"


def generated() -> dict[Path, str]:
    """Return the content of all generated files."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    boards = {"drift": drift(), "serving": serving(), "shadow": shadow()}
    files = {
        HERE / "dashboards" / f"{name}.json": encoder.encode(board.build()) + "\n" for name, board in boards.items()
    }
    return files | {HERE / "provisioning" / "alerting" / "taugate.yml": provisioned(ALERTS)}


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_text(content, encoding="utf-8")
