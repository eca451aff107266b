"""A page of charts: a single HTML file that loads nothing else, for light and dark screens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from fairway.simulation.report.chart import LineChart, draw
from fairway.simulation.report.table import Table

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --card: #f7f8fa; --text: #1c2128; --dim: #5d6673; --rule: #dfe3e8;
  --s0: #0969da; --s1: #cf5a00; --s2: #1a7f37; --s3: #a62bbd; --s4: #c02a4b; --s5: #00808a; --s6: #8a6100; --s7: #6e7781; }
@media (prefers-color-scheme: dark) { :root { --back: #0f1318; --card: #171c23; --text: #e4e8ee; --dim: #98a2b0; --rule: #2b323c;
  --s0: #58a6ff; --s1: #f0883e; --s2: #4cc764; --s3: #d689f0; --s4: #ff7b95; --s5: #45c8d2; --s6: #d9b04a; --s7: #aab4c0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.2rem 1.4rem 3rem; max-width: 62rem; background: var(--back); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; letter-spacing: -.01em; }
h2 { font-size: 1.12rem; margin: 0; }
p { margin: .2rem 0 .8rem; color: var(--dim); }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px;
  padding: 1.1rem 1.2rem .7rem; margin: 1.3rem 0; }
dl { display: flex; flex-wrap: wrap; gap: .3rem 1.8rem; margin: .8rem 0 0; }
dl div { display: flex; gap: .5rem; } dt { color: var(--dim); } dd { margin: 0; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .34rem .55rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { color: var(--dim); font-weight: 600; font-size: .78rem; letter-spacing: .03em; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } td:first-child { font-weight: 600; }
tr:last-child td { border-bottom: 0; }
svg { display: block; width: 100%; min-width: 34rem; height: auto;
  font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.grid { stroke: var(--rule); stroke-width: 1; } .axis { fill: none; stroke: var(--dim); stroke-width: 1; }
.tick { fill: var(--dim); } .name { fill: var(--dim); } .legend { fill: var(--text); }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
footer { color: var(--dim); font-size: .85rem; }
@media print { body { max-width: none; } section { break-inside: avoid; } }
"""


MOST_NAMED = 3
"""Maximum number of policies that a title names after the first."""


@dataclass(frozen=True, slots=True)
class ChartPage:
    """Content of a page, from top to bottom."""

    title: str
    summary: str
    facts: dict[str, str] = field(default_factory=dict)
    """Parameters of the simulation: names and values."""
    tables: tuple[tuple[str, str, Table], ...] = ()
    """Title, a sentence, and the table, for each table."""
    charts: tuple[LineChart, ...] = ()


def write_page(page: ChartPage, command: str = "") -> str:
    """Return the page as text. It is also well-formed XML."""
    made_by = f"<footer>made by <code>{escape(command)}</code></footer>" if command else ""
    parts = [
        "<!DOCTYPE html>",
        '<html xmlns="http://www.w3.org/1999/xhtml" lang="en">',
        '<head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        # The page cannot load anything, not even by mistake.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>",
        f"<title>{escape(page.title)}</title><style>{escape(STYLE)}</style></head>",
        f"<body><header><h1>{escape(page.title)}</h1><p>{escape(page.summary)}</p>{_facts(page.facts)}</header>",
        *(_table(*table) for table in page.tables),
        *(_figure(chart) for chart in page.charts),
        f"{made_by}</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _facts(facts: dict[str, str]) -> str:
    entries = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f"<dl>{entries}</dl>" if entries else ""


def _table(title: str, note: str, table: Table) -> str:
    columns, rows = table
    head = "".join(f"<th>{escape(column.title)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    heading = f"<h2>{escape(title)}</h2><p>{escape(note)}</p>"
    return (
        f'<section>{heading}<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>'
    )


def _figure(chart: LineChart) -> str:
    return (
        f"<section><h2>{escape(chart.title)}</h2><p>{escape(chart.note)}</p><div class='wide'>\n{draw(chart)}\n</div></section>"
    )


def side_by_side(names: Sequence[str]) -> str:
    """Return `fairway against fgd and best-fit`; a number replaces names that would make it long."""
    first, *others = names
    if not others:
        return first
    listed = " and ".join(filter(None, [", ".join(others[:-1]), others[-1]]))
    return f"{first} against {listed if len(others) <= MOST_NAMED else f'{len(others)} others'}"
