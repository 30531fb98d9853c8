"""Fetches the jars for Spark and the broker into the cache, once, as pinned by `jars.lock`.

Ivy, which ships with Spark, fetches them. Maven is therefore not needed, and a mirror can be
configured in the usual way. Each file must have the SHA-256 in the lock.
"""

import hashlib
import os
import ssl
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import local
from typing import Any

from filelock import FileLock

from lake.settings.settings import LakeSettings
from lakehouse.runtime.java import prepare_spark
from pulsar_spark.errors import LakehouseError

LOCK = Path(__file__).with_name("jars.lock")
CONNECTIONS = 8
COMPLETE = "complete"

Progress = Callable[[int, int, str], None]


class JarError(LakehouseError):
    """A jar could not be fetched, or its SHA-256 differs from the lock."""


@dataclass(frozen=True)
class Jar:
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    classifier: str | None
    sha256: str

    @property
    def file_name(self) -> str:
        """The file name that Maven gives the jar."""
        parts = [self.artifact, self.version, self.classifier]
        return "-".join(part for part in parts if part) + ".jar"


def read_lock(group: str, lock: Path = LOCK) -> list[Jar]:
    """The jars of one section of the lock: `spark`, `postgresql`, `s3` or `pulsar`."""
    jars, section = [], None
    for line in lock.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif section == group and line and not line.startswith("#"):
            coordinates, sha256 = line.split()
            organisation, artifact, version, *classifier = coordinates.split(":")
            jars.append(Jar(organisation, artifact, version, next(iter(classifier), None), sha256))
    return jars


def jar_folder(settings: LakeSettings, group: str, jars: Iterable[Jar]) -> Path:
    """The folder of a group's jars. Its name depends on the locked files and their digests."""
    content = "\n".join(f"{jar.file_name} {jar.sha256}" for jar in jars)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return settings.cache_dir / "jars" / f"{group}-{digest}"


def fetch_jars(
    settings: LakeSettings, group: str, progress: Progress | None = None, lock: Path = LOCK
) -> Path:
    """Return the folder with exactly the jars of a group, after fetching those that are missing.

    Args:
        settings: name the cache folder.
        group: section of the lock.
        progress: called with (jars done, jars in total, file name) for each jar that is fetched.
        lock: the file that pins the jars.

    Raises:
        JarError: a jar could not be fetched, or its SHA-256 differs from the lock.
    """
    jars = read_lock(group, lock)
    folder = jar_folder(settings, group, jars)
    if (folder / COMPLETE).exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):  # of processes that start at once, one fetches
        return _fetch_missing(settings, jars, folder, progress)


def _fetch_missing(
    settings: LakeSettings, jars: list[Jar], folder: Path, progress: Progress | None
) -> Path:
    missing = [jar for jar in jars if not (folder / jar.file_name).exists()]
    done = len(jars) - len(missing)
    if missing:
        with _ivy(settings) as download, ThreadPoolExecutor(CONNECTIONS) as pool:
            for jar, source in zip(missing, pool.map(download, missing), strict=True):
                place_verified(jar, source, folder)
                done += 1
                if progress:
                    progress(done, len(jars), jar.file_name)
    (folder / COMPLETE).touch()
    return folder


def place_verified(jar: Jar, source: Path, folder: Path) -> None:
    """Move a fetched file into its folder if it matches the lock, else delete it.

    Raises:
        JarError: the SHA-256 of the file differs from the lock.
    """
    found = hashlib.sha256(source.read_bytes()).hexdigest()
    if found != jar.sha256:
        source.unlink()
        message = (
            f"{jar.file_name} has the SHA-256 {found}, but jars.lock wants {jar.sha256}. The "
            "fetched file is not the locked one. Check the mirror you use "
            "(LAKEHOUSE_IVY_SETTINGS)."
        )
        raise JarError(message)
    os.replace(source, folder / jar.file_name)


@contextmanager
def _ivy(settings: LakeSettings) -> Iterator[Callable[[Jar], Path]]:
    """A function that downloads one jar with Ivy. Several threads may call it."""
    from pyspark.java_gateway import launch_gateway

    prepare_spark(settings)
    gateway = launch_gateway()
    try:
        jvm = gateway.jvm
        _trust_what_python_trusts(jvm)
        ivy_settings = _ivy_settings(jvm, settings)
        ivy = jvm.org.apache.ivy.Ivy.newInstance(ivy_settings)
        ivy.getLoggerEngine().setDefaultLogger(jvm.org.apache.ivy.util.DefaultMessageLogger(0))
        resolver = ivy_settings.getDefaultResolver()
        context = local()

        def download(jar: Jar) -> Path:
            if not hasattr(context, "pushed"):
                ivy.pushContext()
                context.pushed = True
            return _download(gateway, resolver, jar)

        yield download
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)


def _ivy_settings(jvm: Any, settings: LakeSettings) -> Any:
    utils, option = jvm.org.apache.spark.util.MavenUtils, jvm.scala.Option
    home = option.apply(str(settings.cache_dir / "ivy"))
    stderr = jvm.java.lang.System.err
    if settings.ivy_settings is not None:
        path = str(settings.ivy_settings.expanduser())
        return utils.loadIvySettings(path, option.empty(), home, False, stderr)
    return utils.buildIvySettings(option.empty(), home, False, stderr)


def _download(gateway: Any, resolver: Any, jar: Jar) -> Path:
    ivy = gateway.jvm.org.apache.ivy.core
    revision = ivy.module.id.ModuleRevisionId.newInstance(jar.group, jar.artifact, jar.version)
    extra = gateway.jvm.java.util.HashMap()
    if jar.classifier:
        extra.put("m:classifier", jar.classifier)
    artifact = ivy.module.descriptor.DefaultArtifact(
        revision, None, jar.artifact, "jar", "jar", extra
    )
    wanted = gateway.new_array(ivy.module.descriptor.Artifact, 1)
    wanted[0] = artifact
    report = resolver.download(wanted, ivy.resolve.DownloadOptions()).getArtifactReport(artifact)
    file = report.getLocalFile()
    if file is None:
        message = (
            f"{jar.file_name} could not be fetched from the Maven registry. Check the network; "
            "behind a proxy, set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…; for a mirror, set "
            "LAKEHOUSE_IVY_SETTINGS to your ivysettings.xml. Jars that are already fetched are "
            "kept."
        )
        raise JarError(message)
    return Path(str(file.getAbsolutePath()))


def _trust_what_python_trusts(jvm: Any) -> None:
    """Make the JVM trust the authorities that Python trusts, such as a company's own."""
    authorities = ssl.get_default_verify_paths().cafile
    if authorities is None:
        return
    security = jvm.java.security
    store = security.KeyStore.getInstance("PKCS12")
    store.load(None, None)
    stream = jvm.java.io.FileInputStream(authorities)
    factory = security.cert.CertificateFactory.getInstance("X.509")
    for number, certificate in enumerate(factory.generateCertificates(stream)):
        store.setCertificateEntry(f"authority-{number}", certificate)
    stream.close()
    trust = jvm.javax.net.ssl.TrustManagerFactory.getInstance("PKIX")
    trust.init(store)
    context = jvm.javax.net.ssl.SSLContext.getInstance("TLS")
    context.init(None, trust.getTrustManagers(), None)
    jvm.javax.net.ssl.HttpsURLConnection.setDefaultSSLSocketFactory(context.getSocketFactory())
