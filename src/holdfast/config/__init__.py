"""Configuration: one typed :class:`Settings`, from the environment, then ``holdfast.toml``, then defaults.

A setting has one name everywhere: ``API_PORT`` in the environment, ``api_port`` in the file and in the code. This
package imports nothing else of Holdfast, and knows no feature: :func:`compose` adds the settings of the features.
"""

from .loading import CONFIG_FILE, AppSetting, SettingsError, app_setting, fresh_config_text, load
from .secret_safety import fresh_secret
from .settings import FeatureSettings, SettingRow, Settings, compose

__all__ = [
    "CONFIG_FILE",
    "AppSetting",
    "FeatureSettings",
    "SettingRow",
    "Settings",
    "SettingsError",
    "app_setting",
    "compose",
    "fresh_config_text",
    "fresh_secret",
    "load",
]
