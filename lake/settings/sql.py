"""Settings of the SQL endpoint and of its clients."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings


class SqlSettings(BaseSettings):
    """The settings `sql_…` of `LakeSettings`."""

    sql_host: str = Field(
        default="127.0.0.1",
        description="Host that the SQL endpoint listens on, and that its clients connect to",
    )
    sql_port: int = Field(
        default=10000, ge=1, le=65535, description="Port of the SQL endpoint (Thrift/JDBC)"
    )
    sql_authentication: Literal["none", "password", "ldap"] = Field(
        default="none", description="How the SQL endpoint authenticates its users"
    )
    sql_users_file: Path | None = Field(
        default=None,
        description="File of users and hashed passwords, written by `lakehouse sql-user`; "
        "default <home>/sql-users",
    )
    sql_ldap_url: str | None = Field(
        default=None,
        pattern=r"^ldaps?://[^\s/]+/?$",
        description="LDAP server that checks passwords; requires ldaps:// beyond loopback",
    )
    sql_ldap_user: str | None = Field(
        default=None,
        pattern=r"^(%s@[\w.-]+|[\w-]+=%s,[^:]+)$",
        description="Name to log in with at the LDAP server; %s is the user's name: "
        "uid=%s,ou=people,dc=example,dc=org, or %s@example.org for Active Directory",
    )
    sql_tls: bool = Field(default=False, description="Use TLS on the SQL endpoint")
    sql_tls_certificate_file: Path | None = Field(
        default=None, description="PEM file of the endpoint's certificate and intermediates"
    )
    sql_tls_key_file: Path | None = Field(
        default=None, description="PEM file of its key, without a passphrase"
    )
    sql_tls_trust_certs_file: Path | None = Field(
        default=None,
        description="PEM file of the authorities that clients trust; default: the system's",
    )
    sql_allow_insecure: bool = Field(
        default=False,
        description="Listen beyond loopback without a password or TLS, on a protected network",
    )
    sql_user: str = Field(
        default="lakehouse", description="User name with which our own clients log in"
    )
    sql_password: SecretStr | None = Field(
        default=None,
        description="Password of this user; set it only as an environment variable, or use the "
        "file instead",
    )
    sql_password_file: Path | None = Field(
        default=None, description="File that holds this password"
    )
