"""Write the dashboards and the alert rules that Grafana reads. `make dashboards` runs it; a test compares."""

from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.alerts import provisioned
from deploy.grafana.drift import drift
from deploy.grafana.serving import serving
from deploy.grafana.shadow import shadow

HERE = Path(__file__).parent
ALERTS = HERE.parent / "prometheus" / "rules" / "taugate.alerts.yml"


def generated() -> dict[Path, str]:
    """Every file with its content."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    boards = {"drift": drift(), "serving": serving(), "shadow": shadow()}
    files = {
        HERE / "dashboards" / f"{name}.json": encoder.encode(board.build()) + "\n" for name, board in boards.items()
    }
    return files | {HERE / "provisioning" / "alerting" / "taugate.yml": provisioned(ALERTS)}


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_text(content, encoding="utf-8")
