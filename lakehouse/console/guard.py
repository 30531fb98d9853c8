"""Protects the console: who may ask, from where, and what a page may do in the browser.

A page on the internet can make a browser send requests to a server on loopback, under a name that
its owner lets point there (DNS rebinding). A request must therefore name one of our own hosts, and
a request that changes something must come from one of our own pages and carry their CSRF token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "lakehouse_console"
LOGIN = "/login"
OPEN = (LOGIN, "/static/console.css", "/static/console.js", "/static/icon.svg")
LONGEST_BODY = 64 * 1024
# Scripts and styles come from our own files only, and nothing may be sent elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Access:
    """Who may use the console.

    token: what a browser must know; None if nobody is asked.
    hosts: the names under which browsers may reach the console, in lower case.
    is_encrypted: whether it is served by TLS.
    csrf: what a form must send back. It is new in each process.
    """

    def __init__(self, token: str | None, hosts: Collection[str], *, is_encrypted: bool) -> None:
        self.token = token
        self.hosts = frozenset(hosts)
        self.is_encrypted = is_encrypted
        self.csrf = secrets.token_urlsafe(24)

    def knows_host(self, host: str) -> bool:
        """Whether a `Host` header names this server. The port may be that of a tunnel."""
        try:
            parts = urlsplit(f"//{host}")
            _ = parts.port  # raises if it is no port
        except ValueError:
            return False
        is_plain = not (parts.path or parts.query or parts.fragment or parts.username)
        return is_plain and (parts.hostname or "") in self.hosts

    def is_own_origin(self, origin: str, host: str) -> bool:
        """Whether an `Origin` header is that of the pages under this `Host`."""
        return hmac.compare_digest(
            origin.lower().encode(), f"{self._scheme}://{host}".lower().encode()
        )

    def is_known(self, request: Request) -> bool:
        """Whether the browser has shown the token."""
        if self.token is None:
            return True
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(given.strip()):
            return True
        cookie = request.cookies.get(COOKIE, "")
        return hmac.compare_digest(cookie.encode(), self.cookie().encode())

    def is_token(self, given: str) -> bool:
        """Whether this is the token. The comparison takes the same time for all wrong ones."""
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def cookie(self) -> str:
        """The cookie of a browser that has shown the token. The token cannot be derived from it.

        It stays valid over restarts, until the token is changed.
        """
        key = (self.token or "").encode()
        return hmac.new(key, b"lakehouse console", hashlib.sha256).hexdigest()

    def is_csrf(self, given: str) -> bool:
        """Whether a form has sent back what this process gave it."""
        return hmac.compare_digest(given.encode(), self.csrf.encode())

    @property
    def _scheme(self) -> str:
        return "https" if self.is_encrypted else "http"


class Guard:
    """The ASGI middleware that answers what the pages must not see, and adds headers to all."""

    def __init__(
        self, app: ASGIApp, access: Access, failed: Callable[[Request, Exception], Response]
    ) -> None:
        self._app = app
        self._access = access
        self._failed = failed  # makes the page for an error that nothing else handles

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Called by the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused, begun = self._refusal(request), False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if self._access.is_encrypted:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await (refused or self._app)(scope, receive, send_guarded)
        except Exception as error:
            if begun:
                raise
            await self._failed(request, error)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._access.knows_host(hosts[0]):
            return _said(421, "This server does not answer to the host name in the address.")
        if request.method not in ("GET", "HEAD", "POST"):
            return _said(405, "Only GET, HEAD and POST are answered.")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not (
            request.method != "POST" and _is_navigation(headers)
        ):
            return _said(403, "Other sites may not ask this server.")
        origin = headers.get("origin")
        if origin is not None and not self._access.is_own_origin(origin, hosts[0]):
            return _said(403, "Other sites may not ask this server.")
        if request.method == "POST":
            if origin is None and "cookie" in headers:
                return _said(403, "A form must say from which site it comes (Origin).")
            if not _is_short(headers):
                return _said(413, "The form is too long.")
        path = request.url.path
        if path not in OPEN and not self._access.is_known(request):
            if request.method == "GET" and "text/html" in headers.get("accept", ""):
                return RedirectResponse(LOGIN, 303)
            return _said(401, "Log in first, or send the token as `Authorization: Bearer`.")
        return None


def _is_navigation(headers: Headers) -> bool:
    """Whether somebody has followed a link to a page."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") in (
        None,
        "document",
    )


def _is_short(headers: Headers) -> bool:
    length = headers.get("content-length", "")
    return length.isdigit() and int(length) <= LONGEST_BODY


def _said(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status)
