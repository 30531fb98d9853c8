"""Deletes old versions of objects, which a bucket with versioning keeps after a deletion.

Arrow and delta-rs do not support object versions, so the client of Spark's file system is used.
"""

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.streams.failures import explain
from lake.tables.storage import SCHEME, in_bucket
from pulsar_spark.errors import LakehouseError


def delete_old_versions(spark: SparkSession, settings: LakeSettings, place: str) -> int:
    """Delete the old versions of all objects below an address, and their delete markers.

    Returns:
        The number of versions and markers deleted; 0 for a folder or a bucket without versioning.

    Raises:
        LakehouseError: the server does not allow old versions to be listed or deleted.
    """
    if not in_bucket(settings):
        return 0
    client, model = sdk(spark, place)
    bucket, _, prefix = place.removeprefix(SCHEME).partition("/")
    request = model.ListObjectVersionsRequest.builder().bucket(bucket).prefix(f"{prefix}/")
    try:
        old = list(_old(client, request.build()))
        for key, version in old:
            one = model.DeleteObjectRequest.builder().bucket(bucket).key(key).versionId(version)
            client.deleteObject(one.build())
    except Py4JJavaError as error:
        message = (
            f"{place}: old object versions cannot be deleted, so they may still contain deleted "
            f"data: {explain(error)}. Allow s3:ListBucketVersions and s3:DeleteObjectVersion, then "
            "try again."
        )
        raise LakehouseError(message) from error
    return len(old)


def sdk(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """The AWS SDK client with which Spark reaches an address, and the SDK's package of requests."""
    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
    path = jvm.org.apache.hadoop.fs.Path(place)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
    client = files.getS3AInternals().getAmazonS3Client("old versions")
    return client, jvm.software.amazon.awssdk.services.s3.model


def _old(client: Any, request: Any) -> Iterator[tuple[str, str]]:
    """The key and version of each old version and each delete marker."""
    for page in client.listObjectVersionsPaginator(request).iterator():
        for each in page.versions():
            if not each.isLatest():
                yield each.key(), each.versionId()
        for mark in page.deleteMarkers():
            yield mark.key(), mark.versionId()
