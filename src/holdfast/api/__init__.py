"""The HTTP doors: signed courier events, jobs of other workloads, and what operators read and decide.

``create_app`` is the way in. The package knows contracts and engine; which store, queue and workloads stand behind
them is the composition root's affair.
"""

from .app import create_app
from .services import ApiOptions, ApiServices, CourierDoor
from .verify import SourceSecret, sign

__all__ = ["ApiOptions", "ApiServices", "CourierDoor", "SourceSecret", "create_app", "sign"]
