"""Settings of the SQL endpoint and of its clients."""

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings

from lake.settings.roles import LimitedRole, Role

TABLE = re.compile(r"\w+(\.\w+)?")


class RoleSettings(BaseModel):
    """What a role other than `owner` may use of the SQL endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: list[str] | None = Field(
        default=None, description="Schemas and SCHEMA.TABLE that the role may read"
    )
    rows: int = Field(
        default=1_000_000, ge=0, le=2_000_000_000, description="Most rows of a result; 0: all"
    )
    values: int = Field(
        default=5_000_000,
        ge=0,
        le=2_000_000_000,
        description="Most values of a result, that is rows times columns, because it is held in "
        "memory; 0: any number",
    )
    seconds: int = Field(
        default=600, ge=0, description="Longest time that a statement runs; 0: any"
    )
    statements: int = Field(
        default=4, ge=0, description="Statements of a user that run at a time; 0: any number"
    )

    @field_validator("tables")
    @classmethod
    def _are_names(cls, tables: list[str] | None) -> list[str] | None:
        for each in tables or ():
            if not TABLE.fullmatch(each):
                message = f"'{each}' is not the name of a schema or SCHEMA.TABLE"
                raise ValueError(message)
        return tables


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
    sql_roles: dict[LimitedRole, RoleSettings] = Field(
        default={}, description="What readers and analysts may read, and their limits"
    )
    sql_audit_days: int = Field(
        default=90, ge=7, description="Days for which bronze.sql_statements keeps statements"
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
    sql_ldap_roles: dict[str, Role] = Field(
        default={},
        description="Roles by LDAP group, which is named by its whole name or its first part; "
        "without it, every LDAP user is an owner",
    )
    sql_ldap_group_base: str | None = Field(
        default=None,
        description="Entry below which groups name their members, such as ou=groups,dc=example,"
        "dc=org; not needed if entries of users have `memberOf`",
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
