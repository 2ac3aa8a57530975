"""Grafana's dashboards and alert rules, and the program that generates them."""
