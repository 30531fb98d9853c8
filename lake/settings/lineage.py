"""Settings of lineage. The destination is set in OpenLineage's own configuration."""

from pydantic import Field
from pydantic_settings import BaseSettings


class LineageSettings(BaseSettings):
    """The settings `lineage…` of `LakeSettings`."""

    lineage: bool = Field(
        default=False,
        description="Send OpenLineage events to the destination in OPENLINEAGE_URL or "
        "openlineage.yml",
    )
    lineage_namespace: str = Field(
        default="orders-lakehouse",
        min_length=1,
        description="OpenLineage namespace of the jobs; use a different one for each lake",
    )
    lineage_seconds: float = Field(
        default=60,
        ge=0,
        description="Minimum number of seconds between two events of a running stream",
    )
