"""A bucket that tables lie in, where they do not lie in a folder."""

import os
from typing import Annotated

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings

# What an address may have is what neither SQL nor a URL would read as anything else.
BUCKET = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
BucketAddress = Annotated[str, StringConstraints(pattern=rf"^{BUCKET}(/[A-Za-z0-9_][\w.=-]*)*/?$")]


class S3Settings(BaseSettings):
    """The settings `s3_…` of `LakeSettings`.

    There are none for credentials: they come as any client of AWS finds them, from `AWS_…`
    variables, a profile, a web identity or the machine's role.
    """

    s3_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/@]+$",
        description="Server of the bucket, where it is not Amazon's: https://HOST:PORT; default: "
        "AWS_ENDPOINT_URL",
    )
    s3_region: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9-]+$",
        description="Region of the bucket; default: AWS_REGION, or us-east-1",
    )

    @property
    def s3_server(self) -> str | None:
        """Where the bucket is served; None: by Amazon."""
        variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        given = self.s3_endpoint or next(filter(None, map(os.environ.get, variables)), None)
        return given.rstrip("/") if given else None

    @property
    def s3_region_name(self) -> str:
        """The region; three libraries would each find another default."""
        variables = ("AWS_REGION", "AWS_DEFAULT_REGION")
        return self.s3_region or next(filter(None, map(os.environ.get, variables)), "us-east-1")
