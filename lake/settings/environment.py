"""The environment of processes that need none of our secrets: dbt, the embedded broker, Superset.

What they need is named here, so a secret that nobody thought of is not passed on either.
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
        prefixes: what further variables that the process needs begin with.
    """
    wanted = (*PREFIXES, *prefixes)
    return {n: value for n, value in os.environ.items() if n in NAMES or n.startswith(wanted)}
