"""Taugate's application for another ASGI server than its own; settings are read from the environment."""

from fastapi import FastAPI

from taugate.service.api.app import create_app
from taugate.service.settings import Settings


def app() -> FastAPI:
    """The application, which takes no connection before there is a release."""
    return create_app(Settings(), accept_when_ready=True)
