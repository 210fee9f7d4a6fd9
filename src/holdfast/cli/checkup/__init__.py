"""The checks of ``holdfast doctor``. Each gives a finding, and advice where something is wrong."""

from holdfast.feature import FAIL, OK, WARN, Finding

__all__ = ["FAIL", "OK", "WARN", "Finding"]
