"""Tests that the endpoint takes a renewed certificate; `test_security.py` connects to it."""

from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import pkcs12
from py4j.protocol import Py4JError

from lake.settings.settings import LakeSettings, load_settings
from lakehouse.sql.certificate import CertificateWatch


class KeyStores:
    """Stands for `Tls.java`: notes the certificates of the key stores that it is given."""

    def __init__(self, store: str, password: str) -> None:
        self.serials: list[int] = []
        self.renew(store, password)

    def renew(self, store: str, password: str) -> None:
        content = Path(store).read_bytes()
        _, certificate, _ = pkcs12.load_key_and_certificates(content, password.encode())
        assert certificate
        self.serials.append(certificate.serial_number)


def issue(folder: Path) -> trustme.LeafCert:
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(folder / "sql.pem")
    (folder / "sql.key").touch(mode=0o600)
    (folder / "sql.key").write_bytes(issued.private_key_pem.bytes())
    return issued


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    issue(tmp_path)
    return load_settings(
        home=tmp_path,
        sql_tls=True,
        sql_tls_certificate_file=tmp_path / "sql.pem",
        sql_tls_key_file=tmp_path / "sql.key",
    )


def test_files_that_have_changed_are_used_once_they_fit(
    settings: LakeSettings, tmp_path: Path
) -> None:
    watch = CertificateWatch(SimpleNamespace(lakehouse=SimpleNamespace(Tls=KeyStores)), settings)
    assert not watch.renew()
    key = (tmp_path / "sql.key").read_bytes()
    issue(tmp_path)
    new_key = (tmp_path / "sql.key").read_bytes()
    (tmp_path / "sql.key").write_bytes(key)  # the certificate has been written, the key not yet
    assert not watch.renew()
    (tmp_path / "sql.key").unlink()
    assert not watch.renew()
    assert len(watch.tls.serials) == 1
    (tmp_path / "sql.key").touch(mode=0o600)
    (tmp_path / "sql.key").write_bytes(new_key)
    assert watch.renew()
    assert not watch.renew()
    assert len(set(watch.tls.serials)) == 2


def test_a_key_that_java_refuses_does_not_end_the_watch(
    settings: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = CertificateWatch(SimpleNamespace(lakehouse=SimpleNamespace(Tls=KeyStores)), settings)
    really, tries, renewed = watch.tls.renew, list[str](), Event()

    def refusing_at_first(store: str, password: str) -> None:
        tries.append(store)
        if len(tries) == 1:
            message = "unknown kind of key"
            raise Py4JError(message)
        really(store, password)
        renewed.set()

    monkeypatch.setattr(watch.tls, "renew", refusing_at_first)
    monkeypatch.setattr("lakehouse.sql.certificate.CHECK_SECONDS", 0.01)
    issue(tmp_path)
    watch.start()
    assert renewed.wait(10), "the watch has ended"
    watch.stop()
