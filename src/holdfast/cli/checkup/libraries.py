"""Missing libraries, and installed distributions that conflict with ours."""

from __future__ import annotations

from importlib.metadata import distributions
from typing import Final

from holdfast.contracts.extras import DISTRIBUTION
from holdfast.feature import FAIL, OK, WARN, Finding
from holdfast.installed import Lack

_NAMESAKE: Final = "holdfast"
"""Another project's distribution on PyPI, with a package of the same name."""
_PROGRAM: Final = "holdfast.cli:main"
"""The entry point of our command."""


def lacking(lack: Lack, left_out: str) -> Finding:
    """The finding for missing libraries: FAIL if a setting needs them, otherwise information."""
    if lack.asked_by is not None:
        return Finding(lack.part, FAIL, lack.message, f"Install it: {lack.remedy}")
    return Finding(lack.part, OK, f"{left_out}: {', '.join(lack.missing)} not installed.", f"Wanted? {lack.remedy}")


def installation() -> Finding:
    """Whether our distribution is installed, and no other distribution has files in our package."""
    check = "installation"
    found = {_normal(each.name): each for each in distributions() if each.name}
    advice = f"Uninstall both, then install ours: pip uninstall {_NAMESAKE} {DISTRIBUTION}; pip install {DISTRIBUTION}"
    other, ours = found.get(_NAMESAKE), found.get(DISTRIBUTION)
    if other is not None and any(each.value == _PROGRAM for each in other.entry_points):
        message = f"{_NAMESAKE} {other.version} is installed too: an older Holdfast, from before it was {DISTRIBUTION}."
        return Finding(check, WARN, message, advice)
    if other is not None:
        message = (
            f"The distribution {_NAMESAKE} {other.version} is installed too. It is another project, and both have a "
            f"package {_NAMESAKE}: files of one have replaced files of the other."
        )
        return Finding(check, FAIL, message, advice)
    if ours is None:
        return Finding(check, WARN, f"{DISTRIBUTION} is not installed; this is a copy of its files.")
    return Finding(check, OK, f"{DISTRIBUTION} {ours.version}")


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
