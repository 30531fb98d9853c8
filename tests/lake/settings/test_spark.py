"""Tests the settings of Spark on one machine."""

import pytest
from pydantic import ValidationError

from lake.settings.spark import SparkSettings


@pytest.mark.parametrize("size", ["512m", "8g"])
def test_a_heap_size_has_a_unit(size: str) -> None:
    assert SparkSettings(driver_memory=size).driver_memory == size


@pytest.mark.parametrize("size", ["8", "0g", "8 g", "8t", "-1g"])
def test_another_heap_size_is_refused(size: str) -> None:
    with pytest.raises(ValidationError, match="driver_memory"):
        SparkSettings(driver_memory=size)


@pytest.mark.parametrize("options", ["-Xmx4g", "-XX:+UseZGC -XX:MaxHeapSize=1g", "-XX:MaxRAM=1g"])
def test_the_heap_is_set_in_one_place(options: str) -> None:
    with pytest.raises(ValidationError, match="set the heap size with driver_memory"):
        SparkSettings(java_options=options)
    assert SparkSettings(java_options="-XX:+UseZGC").java_options == "-XX:+UseZGC"
