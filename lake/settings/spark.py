"""Settings of Spark on one machine. On a cluster, set them with `spark-submit`."""

import re

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

HEAP = re.compile(r"-Xmx|-XX:MaxHeapSize|-XX:MaxRAM")


class SparkSettings(BaseSettings):
    """The settings of `LakeSettings` for a Spark session that `lakehouse` starts itself."""

    driver_memory: str = Field(
        default="2g",
        pattern=r"^[1-9]\d*[mg]$",
        description="Heap of the Java process that runs Spark on this machine, such as 512m or 8g; "
        "Python processes and the embedded broker need additional memory",
    )
    java_options: str = Field(
        default="", description="More options for that Java process, such as -XX:+UseZGC"
    )

    @field_validator("java_options")
    @classmethod
    def _leaves_the_heap_alone(cls, options: str) -> str:
        found = HEAP.search(options)
        if found:
            message = f"{found[0]} cannot be set here; set the heap size with driver_memory"
            raise ValueError(message)
        return options
