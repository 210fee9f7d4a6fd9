"""The HTTP API: intake of courier events, emails, documents and other jobs, and the routes of operators.

Start at ``app.create_app``. It is not imported here: commands that only read a store need no web framework, which takes
longer to load than such a command takes to run. The package imports contracts and engine only. The wiring chooses the
store, the queue and the workloads.
"""

from holdfast.features.courier.signatures import SourceSecret, sign

from .services import ApiOptions, ApiServices, CourierAdmission

__all__ = ["ApiOptions", "ApiServices", "CourierAdmission", "SourceSecret", "sign"]
