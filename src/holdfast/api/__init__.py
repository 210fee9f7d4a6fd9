"""The HTTP doors: signed courier events, emails, jobs of other workloads, and what operators read and decide.

``app.create_app`` is the way in. It is not imported here: commands that only look into a store need no web framework,
which takes longer to load than they run. The package knows contracts and engine; which store, queue and workloads stand
behind them is the composition root's affair.
"""

from .services import ApiOptions, ApiServices, CourierAdmission
from .verify import SourceSecret, sign

__all__ = ["ApiOptions", "ApiServices", "CourierAdmission", "SourceSecret", "sign"]
