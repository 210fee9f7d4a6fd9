"""Configuration: one typed :class:`Settings`, from the environment, then ``holdfast.toml``, then defaults.

A setting has one name everywhere: ``API_PORT`` in the environment, ``api_port`` in the file and in the code. This
package imports nothing else of Holdfast, and knows no feature: :func:`compose` adds the settings of the features.
"""

from .loading import CONFIG_FILE, SettingsError, fresh_config_text, load
from .secret_safety import fresh_secret
from .settings import FeatureSettings, SettingRow, Settings, compose

__all__ = [
    "CONFIG_FILE",
    "FeatureSettings",
    "SettingRow",
    "Settings",
    "SettingsError",
    "compose",
    "fresh_config_text",
    "fresh_secret",
    "load",
]
