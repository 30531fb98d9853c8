"""dbt that checks the certificate of the SQL endpoint.

Run `python -m gold.dbt build` in the folder of the dbt project.

With `use_ssl`, dbt-spark encrypts the connection, but accepts any certificate. Here, it gets a
connection whose certificate is checked, as in our own client. All our runs of dbt use this module.
"""

import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

from dbt.adapters.spark import connections
from dbt.cli.main import cli as dbt
from thrift.transport.TSSLSocket import TSSLSocket

from gold.sql_client import ANY_PASSWORD, TRUST_ENV, SqlError, plain_sasl, tls_context

WAIT = "--wait"


def main() -> None:
    """Run dbt with the arguments of this process.

    With `--wait FD` alone, load dbt and run it for each line of standard input: a JSON list of the
    arguments and of the variables that were not known before. An empty line is written to the file
    descriptor once dbt is loaded, and then the exit code of each run. `lakehouse gold` starts this
    process early and keeps it from build to build, because loading dbt takes longer than many
    builds. It ends with its input.
    """
    if sys.argv[1:2] != [WAIT]:
        cli()
        return
    with open(int(sys.argv[2]), "w") as answers:
        print(file=answers, flush=True)
        for line in sys.stdin:
            arguments, variables = json.loads(line)
            os.environ.update(variables)
            print(_code(arguments), file=answers, flush=True)


def _code(arguments: list[str]) -> int:
    """Run dbt, and return its exit code."""
    try:
        cli(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def cli(arguments: list[str] | None = None) -> None:
    """Run dbt's command line, with the arguments of the process if None."""
    # The replaced function must be the one that dbt-spark calls, or nothing would be checked.
    known = inspect.signature(connections.build_ssl_transport)
    if list(known.parameters) != list(inspect.signature(_checked_transport).parameters):
        message = (
            "This version of dbt-spark opens connections in an unknown way, so certificates would "
            "not be checked. Install the version in requirements.lock."
        )
        raise SqlError(message)
    connections.build_ssl_transport = _checked_transport
    dbt(arguments)


def _checked_transport(
    host: str,
    port: int,
    username: str,
    auth: str,
    kerberos_service_name: str,
    password: str | None = None,
) -> Any:
    """Replaces dbt-spark's `build_ssl_transport`, and has the same parameters."""
    trust = os.environ.get(TRUST_ENV)
    socket = TSSLSocket(host, port, ssl_context=tls_context(Path(trust) if trust else None))
    socket.open()  # otherwise PyHive closes a socket that is not open, and hides the cause
    return plain_sasl(socket, username, password or ANY_PASSWORD)


if __name__ == "__main__":
    main()
