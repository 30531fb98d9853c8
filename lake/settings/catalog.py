"""Settings of the catalog in which SQL finds tables."""

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings


class CatalogSettings(BaseSettings):
    """The settings `metastore…` of `LakeSettings`."""

    metastore: str | None = Field(
        default=None,
        pattern=r"^(thrift://[^\s/]+:\d+|jdbc:postgresql://[^\s?&;/@]+/[\w-]+(\?\S+)?)$",
        description="Hive metastore that holds the catalog: its PostgreSQL database, "
        "jdbc:postgresql://HOST/DATABASE, or its service, thrift://HOST:9083; in memory by default",
    )
    metastore_user: str = Field(default="hive", description="User of that database")
    metastore_password_file: Path | None = Field(
        default=None, description="File that holds this user's password"
    )

    @field_validator("metastore")
    @classmethod
    def _has_no_password(cls, place: str | None) -> str | None:
        if place and "password" in place.lower():
            message = "addresses are logged; put the password into metastore_password_file"
            raise ValueError(message)
        return place
