"""How taugate is deployed: images, Prometheus rules, Grafana dashboards and pinned requirements."""
