"""How the broker is reached: addresses, TLS and who we are. For the client and the admin API alike.

Secrets are named, never held: options and settings say which environment variable or file holds
a token or key, and it is read when a connection is made. So no plan, checkpoint or log has them.
"""

import dataclasses
import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bronze.errors import SettingsError
from bronze.redaction import hide

if TYPE_CHECKING:  # planners need no client, and readers no HTTP
    import httpx
    import pulsar


@dataclass(frozen=True)
class Connection:
    """Options of `format("pulsar")` about the broker; in snake case here.

    serviceUrl: `pulsar://host:6650`, or `pulsar+ssl://host:6651` for TLS. Required.
    adminUrl: `http://host:8080` or `https://host:8443`. Required: offsets are planned with it.
    tokenEnv, tokenFile: the environment variable or file that holds a JWT. It is read anew for
        every connection, so that it may be rotated.
    oauth2IssuerUrl, oauth2KeyFile, oauth2Audience, oauth2Scope: OAuth2 client credentials; the
        file is JSON with `client_id` and `client_secret`. The first two go together.
    tlsTrustCertsFile: PEM file of the authorities to trust; the system's own if not given.
    tlsCertificateFile, tlsKeyFile: PEM files by which a client shows who it is (mutual TLS).
    tlsValidateHostname: whether the certificate must name the host. Default true.
    tlsAllowInsecureConnection: accept any certificate: for trials alone. Default false.
    """

    service_url: str
    admin_url: str
    token_env: str | None = None
    token_file: str | None = None
    oauth2_issuer_url: str | None = None
    oauth2_key_file: str | None = None
    oauth2_audience: str | None = None
    oauth2_scope: str | None = None
    tls_trust_certs_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    tls_validate_hostname: bool = True
    tls_allow_insecure_connection: bool = False

    def __post_init__(self) -> None:
        """See that what goes together is there together.

        Raises:
            SettingsError: it is not.
        """
        _both("oauth2IssuerUrl", self.oauth2_issuer_url, "oauth2KeyFile", self.oauth2_key_file)
        _both("tlsCertificateFile", self.tls_certificate_file, "tlsKeyFile", self.tls_key_file)
        fields = ("token_env", "token_file", "oauth2_key_file")
        named = [OPTION_OF[field] for field in fields if getattr(self, field)]
        if len(named) > 1:
            message = f"{' and '.join(named)} each say who we are to the broker; set one of them."
            raise SettingsError(message)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Connection":
        """The connection of a reader's or writer's options, by their names in camel case.

        Raises:
            SettingsError: one is missing, unfit or in conflict with another.
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
        """The reverse of `parse`."""
        values = {OPTION_OF[k]: v for k, v in dataclasses.asdict(self).items() if v is not None}
        return {k: str(v).lower() if isinstance(v, bool) else v for k, v in values.items()}

    def client(self) -> "pulsar.Client":
        """A client of the broker; to be closed in the process that made it.

        Raises:
            SettingsError: a file or variable that holds a secret is absent.
        """
        import pulsar

        authentication: Any = None
        if self.token_env or self.token_file:
            self.token()  # the client would report its absence as a refusal by the broker
            authentication = pulsar.AuthenticationToken(self.token)
        elif self.oauth2_key_file:
            authentication = pulsar.AuthenticationOauth2(json.dumps(self._oauth2()))
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
        """A client of the admin API.

        Raises:
            SettingsError: a file or variable that holds a secret is absent.
        """
        import httpx

        tls = self.tls(self.admin_url)
        return httpx.Client(
            base_url=f"{self.admin_url.rstrip('/')}/admin/v2/",
            timeout=timeout_seconds,
            auth=self._http_auth(tls),
            verify=tls,
        )

    def token(self) -> str:
        """The JWT, as it is now."""
        if self.token_env:
            token = os.environ.get(self.token_env, "")
            place = f"the environment variable {self.token_env}"
        else:
            place = f"the file {self.token_file}"
            token = Path(_there("tokenFile", self.token_file) or "").read_text().strip()
        if not token:
            message = f"The broker asks for a token, but {place} holds none; put it there."
            raise SettingsError(message)
        return hide(token)

    def _oauth2(self) -> dict[str, str]:
        stored = json.loads(Path(_there("oauth2KeyFile", self.oauth2_key_file) or "").read_text())
        asked = {"audience": self.oauth2_audience, "scope": self.oauth2_scope}
        return {
            "issuer_url": str(self.oauth2_issuer_url),
            "client_id": stored["client_id"],
            "client_secret": hide(stored["client_secret"]),
            **{name: value for name, value in asked.items() if value},
        }

    def _http_auth(self, tls: ssl.SSLContext) -> "httpx.Auth | Callable[..., Any] | None":
        if self.oauth2_key_file:
            return self._oauth2_flow(tls)
        return self._bearer if self.token_env or self.token_file else None

    def _bearer(self, request: "httpx.Request") -> "httpx.Request":
        request.headers["Authorization"] = f"Bearer {self.token()}"
        return request

    def _oauth2_flow(self, tls: ssl.SSLContext) -> "httpx.Auth":
        import httpx
        from httpx_auth import OAuth2ClientCredentials

        known = self._oauth2()
        issuer = httpx.Client(base_url=known.pop("issuer_url"), verify=tls)
        try:
            answer = issuer.get("/.well-known/openid-configuration").raise_for_status()
            return OAuth2ClientCredentials(answer.json()["token_endpoint"], client=issuer, **known)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            message = f"oauth2IssuerUrl {self.oauth2_issuer_url} gives no token end point: {error}."
            raise SettingsError(message) from error

    def credentials(self) -> tuple[str, str]:
        """How we say who we are in Pulsar's own protocol: the method and its secret, if any.

        Raises:
            SettingsError: a file or variable that holds a secret is absent.
        """
        if self.token_env or self.token_file:
            return "token", self.token()
        if self.oauth2_key_file:
            import httpx

            flow: Any = self._oauth2_flow(self.tls("https://"))
            asked = next(flow.sync_auth_flow(httpx.Request("GET", self.admin_url)))
            return "token", hide(asked.headers["Authorization"].removeprefix("Bearer "))
        return ("tls", "") if self.tls_certificate_file else ("", "")

    def tls(self, url: str) -> ssl.SSLContext:
        """How a connection to an address is secured; of no use where it is not."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if url.startswith(("https://", "pulsar+ssl://")):  # to read the authorities takes a while
            authorities = _there("tlsTrustCertsFile", self.tls_trust_certs_file)
            context = ssl.create_default_context(cafile=authorities)
            if self.tls_certificate_file:
                context.load_cert_chain(self.tls_certificate_file, self.tls_key_file)
        if not self.tls_validate_hostname or self.tls_allow_insecure_connection:
            context.check_hostname = False
        if self.tls_allow_insecure_connection:
            context.verify_mode = ssl.CERT_NONE
        return context


def _camel_case(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part.capitalize() for part in rest)


OPTION_OF = {field.name: _camel_case(field.name) for field in dataclasses.fields(Connection)}
BOOLEANS = {f.name for f in dataclasses.fields(Connection) if isinstance(f.default, bool)}


def _both(one: str, value: str | None, other: str, other_value: str | None) -> None:
    if bool(value) != bool(other_value):
        message = f"{one} and {other} go together: set {other if value else one}, too."
        raise SettingsError(message)


def boolean(name: str, value: str) -> bool:
    """The value of an option that is true or false."""
    if value.lower() not in ("true", "false"):
        message = f"Option {name}: '{value}' is neither true nor false."
        raise SettingsError(message)
    return value.lower() == "true"


def _there(name: str, file: str | None) -> str | None:
    if file is not None and not Path(file).is_file():
        message = f"{name}: there is no file {file} on this machine; correct the path."
        raise SettingsError(message)
    return file
