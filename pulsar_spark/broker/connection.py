"""Connects to the broker: addresses, TLS and credentials, for the client and for the admin API.

Options and settings never contain secrets. They name the environment variable or file that holds a
token or key, which is read when a connection is made. No plan, checkpoint or log therefore contains
a secret.
"""

import dataclasses
import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_spark.errors import SettingsError, require_library
from pulsar_spark.log_masking import hide

if TYPE_CHECKING:  # planning does not need the client, and reading does not need HTTP
    import httpx
    import pulsar


@dataclass(frozen=True)
class Connection:
    """Options of `format("pulsar")` about the broker. The fields have the same names in snake case.

    serviceUrl: `pulsar://host:6650`, or `pulsar+ssl://host:6651` for TLS. Required.
    adminUrl: `http://host:8080` or `https://host:8443`. Required, because planning offsets uses it.
    adminHosts: comma-separated hosts, besides its own, to which the admin API may redirect us. Not
        needed if our role may list the brokers of the cluster, as superusers may.
    tokenEnv, tokenFile: the environment variable or file that holds a JWT. It is read again for
        every connection, so it can be rotated.
    oauth2IssuerUrl, oauth2KeyFile, oauth2Audience, oauth2Scope: OAuth2 client credentials. The file
        is JSON with `client_id` and `client_secret`. The first two options must be set together.
    oauth2TrustCertsFile: PEM file of authorities to trust for the issuer, in addition to the usual
        ones (the system's and certifi's) and those of tlsTrustCertsFile. The issuer is always
        verified.
    tlsTrustCertsFile: PEM file of the authorities to trust. Default: the system's.
    tlsCertificateFile, tlsKeyFile: PEM files of the client certificate and its key (mutual TLS).
    tlsValidateHostname: whether the broker's certificate must name its host. Default true.
    tlsAllowInsecureConnection: whether to accept any certificate; only for experiments. Default
        false.
    """

    service_url: str
    admin_url: str
    admin_hosts: str | None = None
    token_env: str | None = None
    token_file: str | None = None
    oauth2_issuer_url: str | None = None
    oauth2_key_file: str | None = None
    oauth2_audience: str | None = None
    oauth2_scope: str | None = None
    oauth2_trust_certs_file: str | None = None
    tls_trust_certs_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    tls_validate_hostname: bool = True
    tls_allow_insecure_connection: bool = False

    def __post_init__(self) -> None:
        """Check that options that need each other are set together.

        Raises:
            SettingsError: one is missing, two conflict, or the library for OAuth2 is not installed.
        """
        _both("oauth2IssuerUrl", self.oauth2_issuer_url, "oauth2KeyFile", self.oauth2_key_file)
        _both("tlsCertificateFile", self.tls_certificate_file, "tlsKeyFile", self.tls_key_file)
        fields = ("token_env", "token_file", "oauth2_key_file")
        named = [OPTION_OF[field] for field in fields if getattr(self, field)]
        if len(named) > 1:
            message = (
                f"{' and '.join(named)} are different ways to authenticate; set only one of them."
            )
            raise SettingsError(message)
        if self.oauth2_key_file:
            require_library("httpx_auth", "oauth2", "oauth2KeyFile")

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Connection":
        """Parse the connection options of a reader or writer, given by their camel-case names.

        Raises:
            SettingsError: an option is missing or invalid, or conflicts with another.
        """
        for name in ("serviceUrl", "adminUrl"):
            if not given.get(name):
                message = f"Option '{name}' of format(\"pulsar\") is missing; set it."
                raise SettingsError(message)
        values: dict[str, Any] = {}
        for field, name in OPTION_OF.items():
            if name in given:
                text = given[name]
                values[field] = boolean(name, text) if field in BOOLEANS else text
        return cls(**values)

    def options(self) -> dict[str, str]:
        """The options from which `parse` makes this connection."""
        values = {OPTION_OF[k]: v for k, v in dataclasses.asdict(self).items() if v is not None}
        return {k: str(v).lower() if isinstance(v, bool) else v for k, v in values.items()}

    def client(self) -> "pulsar.Client":
        """Create a client of the broker. Close it in the process that created it.

        Raises:
            SettingsError: a file or variable that holds a secret is absent.
        """
        import pulsar

        authentication: Any = None
        if self.token_env or self.token_file:
            self.token()  # the client would report an absent token as a refusal by the broker
            authentication = pulsar.AuthenticationToken(self.token)
        elif self.oauth2_key_file:
            # The client's own AuthenticationOauth2 trusts only the authorities of its build. For
            # the broker, there is no difference: both send it a token.
            issued = self._issuer()
            issued()
            authentication = pulsar.AuthenticationToken(issued)
        elif self.tls_certificate_file:
            authentication = pulsar.AuthenticationTLS(self.tls_certificate_file, self.tls_key_file)
        return pulsar.Client(
            self.service_url,
            authentication=authentication,
            tls_trust_certs_file_path=_there("tlsTrustCertsFile", self.tls_trust_certs_file),
            tls_validate_hostname=self.tls_validate_hostname,
            tls_allow_insecure_connection=self.tls_allow_insecure_connection,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )

    def http(self, timeout_seconds: float) -> "httpx.Client":
        """Create a client of the admin API.

        Raises:
            SettingsError: a file or variable that holds a secret is absent.
        """
        import httpx

        tls = self.tls(self.admin_url)
        return httpx.Client(
            base_url=f"{self.admin_url.rstrip('/')}/admin/v2/",
            timeout=timeout_seconds,
            auth=self._http_auth(),
            verify=tls,
        )

    def token(self) -> str:
        """Read the current JWT, and mask it in all logs from now on.

        Raises:
            SettingsError: the variable or file is absent or empty.
        """
        if self.token_env:
            token = os.environ.get(self.token_env, "")
            place = f"the environment variable {self.token_env}"
        else:
            place = f"the file {self.token_file}"
            token = Path(_there("tokenFile", self.token_file) or "").read_text().strip()
        if not token:
            message = f"The broker requires a token, but {place} is empty; put the token there."
            raise SettingsError(message)
        return hide(token)

    def _http_auth(self) -> "Callable[[httpx.Request], httpx.Request] | None":
        if self.oauth2_key_file:
            return partial(_bear, self._issuer())
        return partial(_bear, self.token) if self.token_env or self.token_file else None

    def _issuer(self) -> Callable[[], str]:
        """A function that returns a token of the OAuth2 issuer, and renews it before it expires.

        Raises:
            SettingsError: the key file is absent. Each call of the function raises it if the issuer
                cannot be reached or verified, or returns no token.
        """
        import httpx
        from httpx_auth import HttpxAuthException, OAuth2, OAuth2ClientCredentials

        stored = json.loads(Path(_there("oauth2KeyFile", self.oauth2_key_file) or "").read_text())
        asked = {"audience": self.oauth2_audience, "scope": self.oauth2_scope}
        asked |= {"client_id": stored["client_id"], "client_secret": hide(stored["client_secret"])}
        issuer = httpx.Client(verify=self._issuer_tls())

        @cache
        def flow() -> OAuth2ClientCredentials:
            place = f"{str(self.oauth2_issuer_url).rstrip('/')}/.well-known/openid-configuration"
            end_point = issuer.get(place).raise_for_status().json()["token_endpoint"]
            given = {name: value for name, value in asked.items() if value}
            return OAuth2ClientCredentials(end_point, client=issuer, **given)

        def token() -> str:
            try:
                new = flow().request_new_token
                return hide(OAuth2.token_cache.get_token(flow().state, on_missing_token=new))
            except (httpx.HTTPError, HttpxAuthException, ValueError, KeyError) as error:
                hint = "; name its authority in oauth2TrustCertsFile" * (
                    "CERTIFICATE" in str(error)
                )
                message = (
                    f"oauth2IssuerUrl {self.oauth2_issuer_url} did not issue a token: "
                    f"{error}{hint}."
                )
                raise SettingsError(message) from error

        return token

    def _issuer_tls(self) -> ssl.SSLContext:
        import httpx

        context = httpx.create_ssl_context()
        context.load_default_certs()
        for name in ("tls_trust_certs_file", "oauth2_trust_certs_file"):
            if file := _there(OPTION_OF[name], getattr(self, name)):
                context.load_verify_locations(file)
        return context

    def credentials(self) -> tuple[str, str]:
        """The authentication method in Pulsar's binary protocol, and its secret; empty if none.

        Raises:
            SettingsError: a file or variable that holds a secret is absent.
        """
        if self.token_env or self.token_file:
            return "token", self.token()
        if self.oauth2_key_file:
            return "token", self._issuer()()
        return ("tls", "") if self.tls_certificate_file else ("", "")

    def tls(self, url: str) -> ssl.SSLContext:
        """The TLS context for connections to an address. It has no effect on a plain address."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if url.startswith(("https://", "pulsar+ssl://")):  # reading the authorities takes a while
            authorities = _there("tlsTrustCertsFile", self.tls_trust_certs_file)
            context = ssl.create_default_context(cafile=authorities)
            if self.tls_certificate_file:
                context.load_cert_chain(self.tls_certificate_file, self.tls_key_file)
        if not self.tls_validate_hostname or self.tls_allow_insecure_connection:
            context.check_hostname = False
        if self.tls_allow_insecure_connection:
            context.verify_mode = ssl.CERT_NONE
        return context


def _bear(token: Callable[[], str], request: "httpx.Request") -> "httpx.Request":
    request.headers["Authorization"] = f"Bearer {token()}"
    return request


def _camel_case(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part.capitalize() for part in rest)


OPTION_OF = {field.name: _camel_case(field.name) for field in dataclasses.fields(Connection)}
BOOLEANS = {f.name for f in dataclasses.fields(Connection) if isinstance(f.default, bool)}


def _both(one: str, value: str | None, other: str, other_value: str | None) -> None:
    if bool(value) != bool(other_value):
        message = f"{one} and {other} must be set together; set {other if value else one} as well."
        raise SettingsError(message)


def boolean(name: str, value: str) -> bool:
    """Parse an option that is `true` or `false`.

    Raises:
        SettingsError: the value is neither.
    """
    if value.lower() not in ("true", "false"):
        message = f"Option {name}: '{value}' is neither true nor false."
        raise SettingsError(message)
    return value.lower() == "true"


def _there(name: str, file: str | None) -> str | None:
    if file is not None and not Path(file).is_file():
        message = f"{name}: the file {file} does not exist on this machine; correct the path."
        raise SettingsError(message)
    return file
