"""The address of the console. Imports no server, because commands print it that serve no page."""

from lake.settings.settings import LakeSettings


def console_url(settings: LakeSettings) -> str:
    """The address of the console for a browser on this machine."""
    scheme = "https" if settings.console_tls_certificate_file else "http"
    host = settings.console_host
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)  # noqa: S104 - compared
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.console_port}"
