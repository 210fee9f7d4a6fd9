"""The checks that ``holdfast doctor`` makes, each with its finding and what to do about it."""

from .findings import FAIL, OK, WARN, Finding

__all__ = ["FAIL", "OK", "WARN", "Finding"]
