"""Settings of the bucket that holds the tables, if they are not in a folder."""

import os
from typing import Annotated

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings

# Only characters that have no special meaning in SQL or in a URL.
BUCKET = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
BucketAddress = Annotated[str, StringConstraints(pattern=rf"^{BUCKET}(/[A-Za-z0-9_][\w.=-]*)*/?$")]


class S3Settings(BaseSettings):
    """The settings `s3_…` of `LakeSettings`.

    Credentials are not settings. They are found where any AWS client looks: in `AWS_…` variables, a
    profile, a web identity or the role of the machine.
    """

    s3_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/@]+$",
        description="Server of the bucket if it is not Amazon S3: https://HOST:PORT; default: "
        "AWS_ENDPOINT_URL",
    )
    s3_region: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9-]+$",
        description="Region of the bucket; default: AWS_REGION, or us-east-1",
    )

    @property
    def s3_server(self) -> str | None:
        """The server of the bucket; None for Amazon."""
        variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        given = self.s3_endpoint or next(filter(None, map(os.environ.get, variables)), None)
        return given.rstrip("/") if given else None

    @property
    def s3_region_name(self) -> str:
        """The region of the bucket.

        It is decided here because three libraries would each use a different default.
        """
        variables = ("AWS_REGION", "AWS_DEFAULT_REGION")
        return self.s3_region or next(filter(None, map(os.environ.get, variables)), "us-east-1")
