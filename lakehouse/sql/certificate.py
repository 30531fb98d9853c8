"""Gives a renewed TLS certificate to the running SQL endpoint."""

import tempfile
import threading
from pathlib import Path
from typing import Any

import structlog

from lake.settings.settings import LakeSettings
from lakehouse.sql.guard import write_key_store

CHECK_SECONDS = 10

log = structlog.get_logger()


class CertificateWatch:
    """Reads the endpoint's key and certificate again when their files change.

    Connections that are open keep the former certificate. If the new files cannot be used, such as
    between the writing of one and of the other, the former ones stay in use.
    """

    def __init__(self, jvm: Any, settings: LakeSettings) -> None:
        self._settings = settings
        self._seen = self._versions()
        self.tls = self._with_key_store(jvm.lakehouse.Tls)
        self._stopped = threading.Event()

    def start(self) -> None:
        """Watch the files in a thread, until `stop`."""
        threading.Thread(target=self._run, name="sql-certificate", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def renew(self) -> bool:
        """Use the files if they have changed. Returns whether they are in use now."""
        versions = self._versions()
        if versions == self._seen:
            return False
        try:
            self._with_key_store(self.tls.renew)
        except Exception as error:  # noqa: BLE001 - otherwise no later certificate would be used
            log.warning("certificate_not_renewed", reason=str(error))
            return False
        self._seen = versions
        log.info("certificate_renewed", file=str(self._settings.sql_tls_certificate_file))
        return True

    def _run(self) -> None:
        while not self._stopped.wait(CHECK_SECONDS):
            self.renew()

    def _with_key_store(self, use: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:  # mode 0700
            store, password = write_key_store(self._settings, Path(folder))
            return use(str(store), password)

    def _versions(self) -> list[tuple[int, int] | None]:
        files = (self._settings.sql_tls_certificate_file, self._settings.sql_tls_key_file)
        return [_version(file.expanduser()) for file in files if file]


def _version(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
