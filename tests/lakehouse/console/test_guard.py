"""Tests that the console answers only its own pages, and lets none of them do more than it may."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from quiet_lake import QuietLake
from served_console import quiet_settings, serving

from lake.streams.pause import is_paused
from lakehouse.console.guard import Access


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> QuietLake:
    home = tmp_path_factory.mktemp("guarded")
    found = QuietLake(quiet_settings(home, console_actions=True))
    found.run("silver", 1)
    return found


@pytest.fixture(scope="module")
def client(quiet: QuietLake) -> Iterator[httpx.Client]:
    with serving(quiet) as found:
        yield found


def csrf(client: httpx.Client) -> str:
    page = client.get("/streams").text
    return page.partition('name="csrf" value="')[2].partition('"')[0]


def own(client: httpx.Client) -> str:
    return str(client.base_url).rstrip("/")


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "127.0.0.1.evil.example",
            "evil.example:80",
            "[::2]",
            "",
            "localhost@evil",
        ),
        *("localhost/evil", "127.0.0.1:x"),
    ],
)
def test_a_request_by_another_name_is_refused(client: httpx.Client, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9999", "[::1]:80", "LOCALHOST:1"])
def test_a_tunnel_may_have_another_port(client: httpx.Client, host: str) -> None:
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_pages_of_other_sites_may_not_ask(client: httpx.Client, headers: dict[str, str]) -> None:
    assert client.get("/", headers=headers).status_code == 403


def test_a_link_on_another_site_may_lead_here(client: httpx.Client) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers={**headers, "Sec-Fetch-Dest": "document"}).status_code == 200
    assert client.post("/streams/pause", headers=headers).status_code == 403


@pytest.mark.parametrize("path", ["/streams/pause", "/quarantine/discard"])
def test_an_action_needs_the_token_of_a_page_of_this_process(
    client: httpx.Client, quiet: QuietLake, path: str
) -> None:
    origin = {"Origin": own(client)}
    for given in ({}, {"csrf": ""}, {"csrf": "x" * 32}):
        refused = client.post(path, data={"stream": "silver", **given}, headers=origin)
        assert refused.status_code == 403
        assert "Load it again" in refused.text
    good = {"stream": "silver", "csrf": csrf(client)}
    for headers in ({"Origin": "https://evil.example"}, {"Cookie": "a=b"}):
        assert client.post(path, data=good, headers=headers).status_code == 403
    assert not is_paused(quiet.settings, "silver")


def test_actions_are_checked_by_name(client: httpx.Client) -> None:
    good = {"csrf": csrf(client)}
    assert client.post("/streams/delete", data={**good, "stream": "silver"}).status_code == 404
    unknown = client.post("/streams/pause", data={**good, "stream": "../../x"})
    assert unknown.status_code == 404
    assert "There is no stream" in unknown.text
    assert client.get("/streams/pause").status_code == 405
    for path in (
        "/quarantine/forget",
        "/tables/silver.nothing",
        "/tables/..%2F..%2Fetc",
        "/nothing",
    ):
        assert client.get(path).status_code == 404, path
    assert client.get("/static/../app.py").status_code == 404
    assert client.put("/streams/pause").status_code == 405
    long = client.post("/streams/pause", data={"csrf": "x" * 70_000})
    assert long.status_code == 413


@pytest.mark.parametrize("path", ["/", "/nothing", "/static/console.js", "/events"])
def test_all_answers_have_a_strict_policy(client: httpx.Client, path: str) -> None:
    with client.stream("GET", path) as answer:
        headers = answer.headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in str(policy)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers


def test_pages_hold_no_inline_script_or_style(client: httpx.Client) -> None:
    for path in ("/", "/freshness", "/streams", "/timeline", "/gold", "/system", "/system/checks"):
        page = client.get(path).text
        assert "<style" not in page
        assert " style=" not in page
        assert page.count("<script") == page.count(
            '<script src="/static/console.js" defer></script>'
        )
        assert " onclick" not in page


def test_the_cookie_does_not_reveal_the_token(tmp_path: Path) -> None:
    token = "a-long-enough-token-for-tests"  # noqa: S105 # pragma: allowlist secret
    access = Access(token, {"localhost"}, is_encrypted=True)
    assert token not in access.cookie()
    assert access.cookie() == Access(token, (), is_encrypted=True).cookie()
    assert access.cookie() != Access(f"{token}2", (), is_encrypted=True).cookie()
    assert access.is_token(token)
    assert not access.is_token("")
    assert not Access(None, (), is_encrypted=False).is_token("")
