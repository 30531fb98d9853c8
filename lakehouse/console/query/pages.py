"""The addresses of the SQL page.

A statement runs by POST with the page's CSRF token, because running one takes the machine's time: a
link, or a browser that loads pages ahead, only fills in the form. The address of the result names
the statement, so it can be shared.
"""

from __future__ import annotations

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gold.tables import GOLD
from lakehouse.console.page import PageMaker, query
from lakehouse.console.query.statements import StatementError, Statements
from lakehouse.console.tables import shown
from lakehouse.console.watcher import Watcher

SOON_SECONDS = 1.5  # most results come so soon that the page need not ask for them
LONGEST_IN_ADDRESS = 4000  # characters; the page of a longer statement knows it by its key


def rows_of(table: str) -> str:
    """The statement for some rows of a table; empty if it is not one of gold."""
    schema, _, name = table.partition(".")
    is_plain = name.isascii() and name.isidentifier()
    return f"select * from {table} limit 100" if schema == GOLD and is_plain else ""  # noqa: S608


class QueryPages:
    """The SQL page, and what it starts."""

    def __init__(self, statements: Statements, pages: PageMaker, watcher: Watcher) -> None:
        self._statements = statements
        self._pages = pages
        self._watcher = watcher

    @property
    def routes(self) -> list[Route]:
        """The addresses."""
        return [
            Route("/sql", self.show),
            Route("/sql", self.run, methods=["POST"]),
            Route("/sql/cancel", self.cancel, methods=["POST"]),
            Route("/sql/result.csv", self.download),
        ]

    def show(self, request: Request) -> Response:
        """The form, and the result that the address names, if it is kept."""
        key = request.query_params.get("run", "")
        text = request.query_params.get("statement", "")
        return self._page(request, text, key)

    def _page(self, request: Request, text: str, key: str, refused: str = "") -> Response:
        statement = self._statements.get(key)
        tables, reader = self._watcher.sample.tables, self._statements.reader
        return self._pages.page(
            request,
            "sql.html.j2",
            "SQL",
            "",
            statement=statement,
            text=text or (statement.text if statement else ""),
            is_gone=bool(key) and statement is None,
            refused=refused,
            obstacle="" if reader else self._statements.obstacle,
            reader=reader,
            running=self._statements.running,
            marts=[(name, sql) for name in tables if (sql := rows_of(name))],
            cell=shown,
        )

    async def run(self, request: Request) -> Response:
        """Start a statement, and show its page."""
        form = await self._pages.form(request, acts=False)
        text = form.get("statement", "").replace("\r\n", "\n")
        address = request.client.host if request.client else ""
        try:
            statement = self._statements.begin(text, address)
        except StatementError as error:
            return await anyio.to_thread.run_sync(self._page, request, text, "", str(error))
        await anyio.to_thread.run_sync(statement.ended.wait, SOON_SECONDS)
        return _to_result(statement.key, text)

    async def cancel(self, request: Request) -> Response:
        """Cancel a statement."""
        form = await self._pages.form(request, acts=False)
        key = form.get("run", "")
        statement = self._statements.get(key)
        if statement is not None:
            await anyio.to_thread.run_sync(self._statements.cancel, key)
            await anyio.to_thread.run_sync(statement.ended.wait, SOON_SECONDS)
        return _to_result(key, form.get("statement", ""))

    def download(self, request: Request) -> Response:
        """A result as CSV."""
        statement = self._statements.get(request.query_params.get("run", ""))
        if statement is None or statement.answer is None:
            raise HTTPException(404, "This result is no longer kept. Run the statement again.")
        headers = {"Content-Disposition": f'attachment; filename="{statement.key}.csv"'}
        return Response(statement.as_csv(), media_type="text/csv", headers=headers)


def _to_result(key: str, text: str) -> Response:
    """Show the result of a statement, at an address that names both."""
    named = text if len(text) <= LONGEST_IN_ADDRESS else ""
    return RedirectResponse(f"/sql?{query(statement=named, run=key)}", 303)
