"""Configuration: one typed :class:`Settings`, from the environment, then ``holdfast.toml``, then defaults.

A setting has one name everywhere: ``API_PORT`` in the environment, ``api_port`` in the file and in the code. This
package imports nothing else of Holdfast.
"""

from holdfast.features.courier.secrets import CourierSecret
from holdfast.features.email.keys import EmailSecrets, email_secrets

from .loading import CONFIG_FILE, SettingsError, load
from .settings import SettingRow, Settings
from .starter import fresh_config_text

__all__ = [
    "CONFIG_FILE",
    "CourierSecret",
    "EmailSecrets",
    "SettingRow",
    "Settings",
    "SettingsError",
    "email_secrets",
    "fresh_config_text",
    "load",
]
