"""Certificates for `localhost`, issued by a certificate authority of the test."""

from pathlib import Path

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
