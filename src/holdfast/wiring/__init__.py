"""The composition root: the one place that puts the parts of Holdfast together."""

from holdfast.features.email.feature import transport_of

from .ambient import RandomIds, SystemClock, system_ambient
from .apps import load_app
from .cluster import Cluster
from .data_folder import DATABASE_FILE, check_data_folder
from .libraries import require_libraries
from .opening import open_cluster, open_system
from .running import CRASH_POINT_VARIABLE, address_of, listen, run
from .system import System, courier_of

__all__ = [
    "CRASH_POINT_VARIABLE",
    "DATABASE_FILE",
    "Cluster",
    "RandomIds",
    "System",
    "SystemClock",
    "address_of",
    "check_data_folder",
    "courier_of",
    "listen",
    "load_app",
    "open_cluster",
    "open_system",
    "require_libraries",
    "run",
    "system_ambient",
    "transport_of",
]
