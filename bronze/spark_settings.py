"""Settings of a Spark on one machine; on a cluster, `spark-submit` sets these."""

import re

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

HEAP = re.compile(r"-Xmx|-XX:MaxHeapSize|-XX:MaxRAM")


class SparkSettings(BaseSettings):
    """The settings of `LakeSettings` for a Spark that `lakehouse` starts itself."""

    driver_memory: str = Field(
        default="2g",
        pattern=r"^[1-9]\d*[mg]$",
        description="Heap of the Java process that runs Spark on this machine, such as 512m or 8g; "
        "Python processes and the embedded broker need memory of their own",
    )
    java_options: str = Field(
        default="", description="Further options of that Java process, such as -XX:+UseZGC"
    )

    @field_validator("java_options")
    @classmethod
    def _leaves_the_heap_alone(cls, options: str) -> str:
        found = HEAP.search(options)
        if found:
            message = f"{found[0]} cannot be set there: the heap is driver_memory"
            raise ValueError(message)
        return options
