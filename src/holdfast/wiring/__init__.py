"""The composition root: the one place that puts the parts of Holdfast together."""

from .features import load_app
from .opening import (
    DATABASE_FILE,
    RandomIds,
    SystemClock,
    check_data_folder,
    open_cluster,
    open_system,
    open_to_others,
    system_ambient,
)
from .running import CRASH_POINT_VARIABLE, STORE_PATIENCE, address_of, listen, run
from .system import Cluster, System

__all__ = [
    "CRASH_POINT_VARIABLE",
    "DATABASE_FILE",
    "STORE_PATIENCE",
    "Cluster",
    "RandomIds",
    "System",
    "SystemClock",
    "address_of",
    "check_data_folder",
    "listen",
    "load_app",
    "open_cluster",
    "open_system",
    "open_to_others",
    "run",
    "system_ambient",
]
