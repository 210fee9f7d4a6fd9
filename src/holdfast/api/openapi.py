"""The OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from holdfast import __version__

from .frame import FeatureApi
from .services import ApiServices


def describe(app: FastAPI, services: ApiServices, features: Sequence[FeatureApi]) -> dict[str, Any]:
    """Make the whole OpenAPI document."""
    del services, features
    return get_openapi(title="Holdfast", version=__version__, routes=app.routes)
