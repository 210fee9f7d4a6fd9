"""Configuration: one typed :class:`Settings`, from the environment, then ``holdfast.toml``, then defaults.

A setting has one name everywhere: ``API_PORT`` in the environment, ``api_port`` in the file and in the code. This
package imports nothing else of Holdfast, and knows no feature: :func:`compose` adds the settings of the features.
"""

from .loading import CONFIG_FILE, SettingsError, load
from .settings import FeatureSettings, SettingRow, Settings, compose
from .starter import fresh_config_text, fresh_secret

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
