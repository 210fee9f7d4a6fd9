"""The settings of text messages. Their names begin with the feature's name: ``SMS_PROVIDER_URL``, or ``[sms]``."""

from __future__ import annotations

from pydantic import Field, SecretStr

from holdfast.feature import FeatureSettings, Int, Settings, WebAddress


class SmsSettings(FeatureSettings):
    """What the operator decided about text messages."""

    sms_provider_url: WebAddress = Field(None, description="The SMS provider's API. Without it, no messages are sent.")
    sms_provider_key: SecretStr | None = Field(None, description="The key for the SMS provider's API.")
    sms_timeout_ms: Int = Field(5_000, ge=100, le=20_000, description="How long the SMS provider may take to answer.")

    def problems(self, process: Settings) -> list[str]:
        """A provider needs its key."""
        del process
        if self.sms_provider_url is not None and self.sms_provider_key is None:
            return ["SMS_PROVIDER_URL needs SMS_PROVIDER_KEY, the key for the provider's API."]
        return []
