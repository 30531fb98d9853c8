"""The charts, in Vega-Lite.

Their colours are variables of the style sheet, because dark mode and print need other colours.
"""

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

Unit = Literal["day", "month", "year"]

# Okabe and Ito's palette, which people with any colour vision can tell apart. Grey is the rest.
SERIES = tuple(f"var(--series-{number})" for number in range(1, 7))
REST = "var(--series-rest)"

BINS = {
    "day": alt.TimeUnitParams(unit="yearmonthdate", utc=True),
    "month": alt.TimeUnitParams(unit="yearmonth", utc=True),
    "year": alt.TimeUnitParams(unit="year", utc=True),
}
TIMES = {"day": "%-d %B %Y", "month": "%B %Y", "year": "%Y"}
TIME_CHART, BAR = 240, 28  # heights in pixels
ROOM = alt.ExprRef("width - 80")  # 80 pixels for the numbers after the bars


def over_time(
    rows: Sequence[dict[str, Any]],
    unit: Unit,
    measure: str,
    series: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Bars by day, month or year, which are stacked if there are several series.

    Args:
        rows: each has `start` (a time) and `value`. With several series, it also has the `name`
            of its series and `place`, its position in the stack.
        unit: the period of a bar.
        measure: name of the value in the tooltip.
        series: name and colour of each series.

    Returns:
        The chart as a Vega-Lite specification.
    """
    chart = alt.Chart(alt.InlineData([_plain(row) for row in rows])).mark_bar(color=SERIES[0])
    tooltip = [
        alt.Tooltip("start:T", timeUnit=BINS[unit], title=unit, format=TIMES[unit]),
        alt.Tooltip("value:Q", title=measure, format=",.0f"),
    ]
    if series:
        names, colours = zip(*series, strict=True)
        scale = alt.Scale(domain=list(names), range=list(colours))
        colour = alt.Color("name:N", scale=scale, legend=None)
        chart = chart.encode(color=colour, order="place:Q")
        tooltip.insert(1, alt.Tooltip("name:N"))
    chart = chart.encode(
        x=alt.X(
            "start:T",
            timeUnit=BINS[unit],
            title=None,
            scale=alt.Scale(type="utc"),
            axis=alt.Axis(labelBound=True),
        ),
        y=alt.Y("value:Q", title=None, axis=alt.Axis(format="~s", tickCount=5)),
        tooltip=tooltip,
    )
    return _finished(chart, TIME_CHART)


def bars(rows: Sequence[tuple[str, Any]], measure: str) -> dict[str, Any]:
    """A horizontal bar for each name, followed by its number, in the order of the rows."""
    values = [{"name": name, "value": float(value or 0)} for name, value in rows]
    axis = alt.Axis(ticks=False, domain=False, labelLimit=150, labelPadding=8)
    base = alt.Chart(alt.InlineData(values)).encode(
        y=alt.Y("name:N", sort=None, title=None, axis=axis),
        x=alt.X("value:Q", axis=None, scale=alt.Scale(range=[0, ROOM], nice=False)),
        tooltip=[
            alt.Tooltip("name:N", title="name"),
            alt.Tooltip("value:Q", title=measure, format=",.0f"),
        ],
    )
    drawn = base.mark_bar(color=SERIES[0])
    numbers = base.mark_text(align="left", dx=6).encode(text=alt.Text("value:Q", format=",.0f"))
    return _finished(alt.layer(drawn, numbers), BAR * len(values))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row with values that JSON can represent."""
    return {**row, "start": row["start"].strftime("%Y-%m-%d"), "value": float(row["value"] or 0)}


def _finished(chart: alt.TopLevelMixin, height: int) -> dict[str, Any]:
    spec: dict[str, Any] = (
        chart.properties(width="container", height=height)
        .configure(
            font="system-ui, sans-serif",
            background="transparent",
            autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
            padding=2,
        )
        .configure_view(stroke=None)
        .configure_text(color="var(--ink)", fontSize=13)
        .configure_axis(
            labelColor="var(--soft)",
            labelFontSize=12.5,
            gridColor="var(--line)",
            domainColor="var(--line)",
            tickColor="var(--line)",
        )
        .configure_axisX(grid=False)
        .to_dict()
    )
    return spec
