"""All settings. One class serves all layers, because they share one lake.

Order of precedence: command line, environment (`LAKEHOUSE_…`), `lakehouse.toml` in the working
directory, default.
"""

import atexit
import contextlib
import os
import re
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from lake.settings.catalog import CatalogSettings
from lake.settings.console import ConsoleSettings
from lake.settings.lineage import LineageSettings
from lake.settings.log_format import LogFormat
from lake.settings.ports import expected_port, known_ports, ports_of_others
from lake.settings.pseudonyms import PseudonymSecret
from lake.settings.s3 import BucketAddress, S3Settings
from lake.settings.spark import SparkSettings
from lake.settings.sql import SqlSettings
from pulsar_spark.broker.connection import OPTION_OF, Connection
from pulsar_spark.errors import SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOKEN_ENV = "LAKEHOUSE_PULSAR_TOKEN"  # noqa: S105 - the name of the variable, not the secret
# The setting that holds each kind of port, and how it does so.
PORTS = {
    "broker": ("pulsar_url", "pulsar://127.0.0.1:{}"),
    "admin": ("pulsar_admin_url", "http://127.0.0.1:{}"),
    "sql": ("sql_port", ""),
    "console": ("console_port", ""),
}
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/")  # pathlib collapses the second slash
PSEUDONYM_ENV = "LAKEHOUSE_PSEUDONYM_SECRET"
# The file exists until the process ends, even if the package is a wheel passed as `--py-files`.
_shipped = contextlib.ExitStack()
atexit.register(_shipped.close)
SHOP_TOPICS = _shipped.enter_context(resources.as_file(resources.files("shop") / "topics.toml"))
SHOP_DBT = Path(__file__).resolve().parents[2] / "dbt_project"


class LakeSettings(
    SqlSettings, ConsoleSettings, CatalogSettings, LineageSettings, S3Settings, SparkSettings
):
    """Every setting of the lakehouse; `lakehouse.toml` takes the same names without the prefix."""

    model_config = SettingsConfigDict(
        env_prefix="LAKEHOUSE_",
        toml_file="lakehouse.toml",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # it may be a secret
    )

    home: Path = Field(
        default=Path(".lakehouse"), description="Folder of the embedded runtime: broker data, logs"
    )
    lake: BucketAddress | Path | None = Field(
        default=None,
        description="Folder of tables and checkpoints, <home>/lake by default; or "
        "s3://BUCKET/PREFIX for the tables only",
    )
    cache: Path = Field(
        default=Path("~/.cache/lakehouse"), description="Folder for the jars, shared by all lakes"
    )
    warm_up: bool = Field(
        default=True,
        description="Make Java's ahead-of-time caches in the background after the first demo or up",
    )
    ivy_settings: Path | None = Field(
        default=None, description="An ivysettings.xml with your own mirror of the Maven registry"
    )
    topics: Path = Field(default=SHOP_TOPICS, description="Topic file (TOML)")
    dbt_project: Path = Field(default=SHOP_DBT, description="Folder of the dbt project of gold")
    pulsar_url: str = Field(
        default="pulsar://127.0.0.1:6650",
        pattern=r"^pulsar(\+ssl)?://[^/]+$",
        description="Service URL of the broker: pulsar://, or pulsar+ssl:// for TLS",
    )
    pulsar_admin_url: str = Field(
        default="http://127.0.0.1:8080",
        pattern=r"^https?://",
        description="Admin (HTTP) URL of the broker",
    )
    pulsar_admin_hosts: str | None = Field(
        default=None,
        description="Hosts to which the admin API may redirect us; default: the brokers it lists",
    )
    pulsar_namespace: str = Field(
        default="public/default", description="Tenant and namespace of the topics"
    )
    pulsar_token: SecretStr | None = Field(
        default=None,
        description="JWT for the broker; only as an environment variable, otherwise use the file",
    )
    pulsar_token_file: Path | None = Field(default=None, description="File that holds this token")
    pulsar_oauth2_issuer_url: str | None = Field(
        default=None, description="Token issuer for OAuth2 client credentials"
    )
    pulsar_oauth2_key_file: Path | None = Field(
        default=None, description="JSON file with client_id and client_secret for the issuer"
    )
    pulsar_oauth2_audience: str | None = Field(default=None, description="Audience of the token")
    pulsar_oauth2_scope: str | None = Field(default=None, description="Scope of the token")
    pulsar_oauth2_trust_certs_file: Path | None = Field(
        default=None,
        description="PEM file of additional authorities to trust for the issuer",
    )
    pulsar_tls_trust_certs_file: Path | None = Field(
        default=None, description="PEM file of the authorities to trust, for pulsar+ssl and https"
    )
    pulsar_tls_certificate_file: Path | None = Field(
        default=None, description="PEM file of the client certificate (mutual TLS)"
    )
    pulsar_tls_key_file: Path | None = Field(default=None, description="PEM file of its key")
    pulsar_tls_validate_hostname: bool = Field(
        default=True, description="Require that the broker's certificate names its host"
    )
    pulsar_tls_allow_insecure_connection: bool = Field(
        default=False, description="Accept any certificate; only for experiments"
    )
    pseudonym_secret: SecretStr | None = Field(
        default=None,
        description="Key for hashing personal data; only as an environment variable, otherwise "
        "use the file",
    )
    pseudonym_secret_file: Path | None = Field(
        default=None,
        description="File that holds this key; on a cluster, on storage that all machines can read",
    )
    trigger: str = Field(default="1 second", description="Interval between micro-batches")
    silver_trigger: str = Field(
        default="250 milliseconds",
        description="How often silver checks whether bronze has landed something; a check costs "
        "much less than a batch",
    )
    max_messages_per_trigger: int | None = Field(
        default=None,
        ge=1,
        description="Approximate number of messages of a topic that bronze lands in one batch",
    )
    max_bytes_per_trigger: int | None = Field(
        default=None, ge=1, description="Approximate number of stored bytes of a topic in one batch"
    )
    accept_data_loss: bool = Field(
        default=False,
        description="Continue when the broker has dropped unread messages; see bronze.data_loss",
    )
    restarts: int = Field(
        default=5,
        ge=0,
        description="Restarts of a failed stream before it is given up; the count starts over "
        "after each finished batch",
    )
    restart_delay: float = Field(
        default=10,
        ge=0,
        description="Seconds before the first restart; doubled before each further one, up to 5 "
        "minutes",
    )
    exit_when_given_up: bool = Field(
        default=False,
        description="End the job when a stream is given up; otherwise the others continue until "
        "none is left",
    )
    stop_seconds: float = Field(
        default=20,
        ge=0,
        description="Seconds that running batches get to finish when the job is asked to stop; "
        "then they are cancelled, and the next start repeats them",
    )
    history_days: int = Field(
        default=7,
        ge=7,
        description="Days for which old versions of tables stay readable; at least 7, because "
        "readers and streams may still use them",
    )
    connect_host: str = Field(
        default="127.0.0.1",
        description="Host that Spark Connect listens on; its clients can run any code there",
    )
    connect_port: int | None = Field(
        default=None, ge=1, le=65535, description="Port of Spark Connect; off by default"
    )

    connect_token_file: Path | None = Field(
        default=None,
        description="File with the token that clients of Spark Connect must send; needed if the "
        "SQL endpoint asks for passwords",
    )

    log_format: LogFormat = Field(
        default="text", description="Format of logs on stderr: text or json"
    )
    metrics_host: str = Field(
        default="127.0.0.1", description="Host on which /metrics is served, without a password"
    )
    metrics_port: int | None = Field(
        default=None, ge=1, le=65535, description="Port of /metrics; off by default"
    )

    stuck_seconds: float = Field(
        default=1800,
        gt=0,
        description="Seconds without progress of a stream after which /livez reports the process "
        "as stuck",
    )

    @field_validator("home", "lake", "cache")
    @classmethod
    def _is_a_folder(cls, folder: Path | str | None, info: ValidationInfo) -> Path | str | None:
        if not isinstance(folder, Path):
            return folder and folder.rstrip("/")
        if folder.expanduser().is_file():
            message = f"{folder} is a file, not a folder"
            raise ValueError(message)
        if odd := {"%", "\\"} & {*str(folder)}:
            message = f"{folder} has {odd.pop()} in its name, which Delta's readers misinterpret"
            raise ValueError(message)
        if ADDRESS.match(str(folder)):
            known = "a folder or s3://BUCKET/PREFIX" if info.field_name == "lake" else "a folder"
            message = (
                f"{folder} is an address that is not supported: name {known}, see docs/deploying.md"
            )
            raise ValueError(message)
        return folder

    @field_validator("pulsar_token", "sql_password", "pseudonym_secret", "console_token")
    @classmethod
    def _is_in_the_environment(
        cls, secret: SecretStr | None, info: ValidationInfo
    ) -> SecretStr | None:
        variable = f"LAKEHOUSE_{info.field_name}".upper()
        if secret is not None and variable not in os.environ:
            message = (
                f"a secret belongs in the environment, or in a file named by {info.field_name}_file"
            )
            raise ValueError(message)
        return secret

    @property
    def connection(self) -> Connection:
        """How to reach the broker.

        Raises:
            SettingsError: settings of the connection contradict each other.
        """
        given: dict[str, Any] = {n: getattr(self, f"pulsar_{n}", None) for n in OPTION_OF}
        given["service_url"] = self.pulsar_url
        given["token_env"] = TOKEN_ENV if self.pulsar_token else None
        paths = {n: str(v.expanduser().resolve()) for n, v in given.items() if isinstance(v, Path)}
        return Connection(**{**given, **paths})

    @property
    def pseudonyms(self) -> PseudonymSecret | None:
        """Where to find the key for hashing personal data; None if it is not set.

        Raises:
            SettingsError: it is set twice.
        """
        if self.pseudonym_secret and self.pseudonym_secret_file:
            message = "pseudonym_secret and pseudonym_secret_file are the same; set one of them."
            raise SettingsError(message)
        if self.pseudonym_secret_file:
            return PseudonymSecret(file=str(self.pseudonym_secret_file.expanduser().resolve()))
        return PseudonymSecret(env=PSEUDONYM_ENV) if self.pseudonym_secret else None

    @property
    def lake_dir(self) -> Path:
        """The absolute folder of checkpoints, savepoints, and tables that are not in a bucket."""
        folder = self.lake if isinstance(self.lake, Path) else self.home / "lake"
        return folder.expanduser().resolve()

    @property
    def tables(self) -> str:
        """The place of the tables: a folder, or the address of a bucket."""
        return self.lake if isinstance(self.lake, str) else str(self.lake_dir)

    @property
    def unnamed_ports(self) -> list[str]:
        """The kinds of ports (`ports.py`) that no setting names, of servers on this machine."""
        kinds = []
        if not {"pulsar_url", "pulsar_admin_url"} & self.model_fields_set:
            kinds += ["broker", "admin"]
        if not {"sql_port", "sql_host"} & self.model_fields_set:
            kinds += ["sql"]
        if not {"console_port", "console_host"} & self.model_fields_set:
            kinds += ["console"]
        return kinds

    @property
    def home_dir(self) -> Path:
        """The absolute folder of the embedded runtime."""
        return self.home.expanduser().resolve()

    @property
    def cache_dir(self) -> Path:
        """The absolute folder of the jars."""
        return self.cache.expanduser().resolve()

    def table_path(self, layer: str, name: str) -> str:
        """The place of the Delta table `<layer>.<name>`."""
        return f"{self.tables}/{layer}/{name}"

    def full_topic(self, name: str) -> str:
        """The full name on the broker of a topic in our namespace.

        `Lake.address` gives that of a declared topic, which may be elsewhere.
        """
        return f"persistent://{self.pulsar_namespace}/{name}"

    @property
    def checkpoints_dir(self) -> Path:
        """The folder of all checkpoints; each streaming query has a folder of its name there."""
        return self.lake_dir / "_checkpoints"

    def checkpoint_path(self, query: str) -> str:
        """The checkpoint folder of the streaming query with this name."""
        return str(self.checkpoints_dir / query)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Give the environment precedence over `lakehouse.toml`."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(**overrides: Any) -> LakeSettings:
    """Read the settings; for options that are None, the environment and the file decide.

    Raises:
        SettingsError: a value is invalid, or `lakehouse.toml` contains an unknown name.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        settings = LakeSettings(**given)
    except tomllib.TOMLDecodeError as error:
        message = f"lakehouse.toml is not valid TOML: {error}."
        raise SettingsError(message) from error
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        message = (
            f"Setting '{name}': {first['msg']}. Set it as LAKEHOUSE_{name.upper()}, "
            "in lakehouse.toml or on the command line; docs/reference/settings.md lists them all."
        )
        raise SettingsError(message) from error
    return with_ports(settings)


def with_ports(settings: LakeSettings, chosen: Mapping[str, int] | None = None) -> LakeSettings:
    """Copy the settings with the ports of the home, where the settings name none.

    Args:
        settings: the settings.
        chosen: ports that were chosen just now; None for those that the home has chosen before, or
            would choose.

    Raises:
        LakehouseError: the file with the ports is torn.
    """
    kinds = settings.unnamed_ports
    if not kinds:
        return settings
    home = settings.home_dir
    if chosen is None:
        known = known_ports(home)
        others = {} if known.keys() >= {*kinds} else ports_of_others(home, settings.cache_dir)
        chosen = {kind: known.get(kind) or expected_port(kind, home, others) for kind in kinds}
    found: dict[str, Any] = {}
    for kind in kinds:
        if kind in chosen:
            name, form = PORTS[kind]
            found[name] = form.format(chosen[kind]) if form else chosen[kind]
    copied = settings.model_copy(update=found)
    copied.model_fields_set.difference_update(found)  # they are still not named
    return copied
