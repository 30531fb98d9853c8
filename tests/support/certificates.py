"""Certificates for `localhost`, issued by a certificate authority of the test."""

from pathlib import Path
from typing import Any

import trustme


def issue(folder: Path, name: str) -> bytes:
    """Write `ca.pem`, `<name>.pem`, and `stranger.pem` of an unrelated authority.

    Returns:
        The private key of the certificate, as PEM.
    """
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "stranger.pem")
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    key: bytes = issued.private_key_pem.bytes()
    return key


def sql_tls(folder: Path) -> dict[str, Any]:
    """Issue a certificate for the SQL endpoint, and return the settings that use it."""
    key = issue(folder, "sql")
    (folder / "sql.key").touch(mode=0o600)
    (folder / "sql.key").write_bytes(key)
    return {
        "sql_host": "localhost",
        "sql_tls": True,
        "sql_tls_certificate_file": folder / "sql.pem",
        "sql_tls_key_file": folder / "sql.key",
        "sql_tls_trust_certs_file": folder / "ca.pem",
    }
