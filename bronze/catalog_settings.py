"""Where the catalog of tables is kept, for SQL."""

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings


class CatalogSettings(BaseSettings):
    """The settings `metastore…` of `LakeSettings`."""

    metastore: str | None = Field(
        default=None,
        pattern=r"^(thrift://[^\s/]+:\d+|jdbc:postgresql://[^\s?&;/@]+/[\w-]+(\?\S+)?)$",
        description="Hive metastore that keeps the catalog: its PostgreSQL, "
        "jdbc:postgresql://HOST/DATABASE, or its service, thrift://HOST:9083; in memory if not "
        "given",
    )
    metastore_user: str = Field(default="hive", description="User of that PostgreSQL")
    metastore_password_file: Path | None = Field(
        default=None, description="File with their password"
    )

    @field_validator("metastore")
    @classmethod
    def _has_no_password(cls, place: str | None) -> str | None:
        if place and "password" in place.lower():
            message = "an address is logged; the password goes into metastore_password_file"
            raise ValueError(message)
        return place
