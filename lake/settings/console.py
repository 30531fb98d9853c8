"""Settings of the console, the web page about a lake."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

CONSOLE_TOKEN_ENV = "LAKEHOUSE_CONSOLE_TOKEN"  # noqa: S105 - the name of the variable


class ConsoleSettings(BaseSettings):
    """The settings `console…` of `LakeSettings`."""

    console: bool = Field(default=True, description="Serve the console while `lakehouse up` runs")
    console_host: str = Field(
        default="127.0.0.1",
        description="Host that the console listens on; beyond loopback it needs a token and TLS",
    )
    console_port: int = Field(default=8090, ge=1, le=65535, description="Port of the console")
    console_actions: bool = Field(
        default=False,
        description="Let the console pause and resume streams, and replay or discard quarantined "
        "records",
    )
    console_personal: bool = Field(
        default=False, description="Show personal fields in the console instead of masking them"
    )
    console_token: SecretStr | None = Field(
        default=None,
        description="Token that the console asks for, at least 16 characters; only as an "
        "environment variable, otherwise use the file",
    )
    console_token_file: Path | None = Field(default=None, description="File that holds this token")
    console_tls_certificate_file: Path | None = Field(
        default=None,
        description="PEM file of the console's certificate and intermediates; it must name the "
        "host in the addresses of browsers",
    )
    console_tls_key_file: Path | None = Field(
        default=None, description="PEM file of its key, without a passphrase"
    )
