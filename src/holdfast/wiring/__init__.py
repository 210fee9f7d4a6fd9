"""The composition root: the one place that puts the parts of Holdfast together."""

from .ambient import RandomIds, SystemClock, system_ambient
from .apps import load_app
from .cluster import Cluster
from .data_folder import DATABASE_FILE, check_data_folder
from .opening import open_cluster, open_system
from .running import CRASH_POINT_VARIABLE, address_of, listen, run
from .system import System

__all__ = [
    "CRASH_POINT_VARIABLE",
    "DATABASE_FILE",
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
    "run",
    "system_ambient",
]
