"""Reads the certificate and the key with which a server of ours encrypts its connections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from lake.settings.secret_files import require_private
from pulsar_spark.errors import SettingsError


def key_and_certificates(
    certificate: tuple[str, Path], key: tuple[str, Path]
) -> tuple[Any, list[x509.Certificate]]:
    """The private key, and the certificate chain, which begins with the server's own certificate.

    Args:
        certificate: the name of the setting, and the PEM file that it names.
        key: the same for the key, which must not have a passphrase.

    Raises:
        SettingsError: a file is missing or cannot be read, others can read the key, or key and
            certificate do not match.
    """
    (setting, file), (key_setting, key_file) = certificate, key
    try:
        chain = x509.load_pem_x509_certificates(file.expanduser().read_bytes())
    except (OSError, ValueError) as error:
        what = f"{setting}: {file} cannot be read as PEM certificates ({error})."
        raise SettingsError(what, "Correct the path or the file.") from error
    try:
        found = load_pem_private_key(require_private(key_setting, key_file).read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        what = (
            f"{key_setting}: {key_file} cannot be read as a PEM key without a passphrase ({error})."
        )
        raise SettingsError(what, "Correct the path or the file.") from error
    if chain[0].public_key() != found.public_key():
        what = (
            f"{key_setting}: the key in {key_file} does not belong to the first certificate in "
            f"{file}."
        )
        raise SettingsError(what, "Put the server's own certificate first, or correct a path.")
    return found, chain
