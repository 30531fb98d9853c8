"""Whether, and as whose, lineage is told. Where to is OpenLineage's own configuration."""

from pydantic import Field
from pydantic_settings import BaseSettings


class LineageSettings(BaseSettings):
    """The settings `lineage…` of `LakeSettings`."""

    lineage: bool = Field(
        default=False,
        description="Send OpenLineage events, to where OPENLINEAGE_URL or openlineage.yml says",
    )
    lineage_namespace: str = Field(
        default="orders-lakehouse",
        min_length=1,
        description="OpenLineage namespace of our jobs; another for each lake",
    )
    lineage_seconds: float = Field(
        default=60, ge=0, description="Seconds between two events of a stream that runs, at least"
    )
