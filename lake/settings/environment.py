"""The environment of processes that need few of our secrets: dbt, the embedded broker, Superset.

Only the variables listed here are passed on, so no secret is passed on by oversight. Who starts a
process adds the secret that it needs.
"""

import os

NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("JAVA_HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    }
)
PREFIXES = ("LC_", "PYTHON")


def plain_environment(*prefixes: str) -> dict[str, str]:
    """Our environment without anything that may be a secret.

    Args:
        prefixes: prefixes of the names of further variables that the process needs.
    """
    wanted = (*PREFIXES, *prefixes)
    return {n: value for n, value in os.environ.items() if n in NAMES or n.startswith(wanted)}
