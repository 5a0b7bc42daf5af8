"""The frame of a report: one page that needs no other file and no network."""

from __future__ import annotations

from html import escape
from typing import Final

_STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--ink:#1c2733;--soft:#5d6b7a;--line:#dfe5eb;--card:#f6f8fa;
--ok:#12703f;--okbg:#e3f5ea;--bad:#a4161a;--badbg:#fdeaea;--na:#5d6b7a;--nabg:#edf0f3}
@media(prefers-color-scheme:dark){:root{--bg:#12181f;--ink:#e4eaf0;--soft:#9aa8b6;--line:#2b3641;
--card:#1a222b;--ok:#6fd39b;--okbg:#153524;--bad:#ff9a9a;--badbg:#451b1e;--na:#9aa8b6;--nabg:#26303a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 6px}
p{margin:4px 0 10px;color:var(--soft)}
.verdict{display:flex;gap:18px;align-items:center;padding:18px 22px;border-radius:10px;
margin:18px 0 22px}
.verdict b{font-size:21px}.verdict span{color:inherit;opacity:.85}
.ok{background:var(--okbg);color:var(--ok)}.violated{background:var(--badbg);color:var(--bad)}
.na{background:var(--nabg);color:var(--na)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:12px}
.fact{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.fact b{display:block;font-size:20px;font-variant-numeric:tabular-nums}
.fact span{color:var(--soft);font-size:13px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;color:var(--soft);font-weight:600;font-size:13px}
th,td{padding:7px 10px;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right}
.badge{display:inline-block;padding:1px 10px;border-radius:99px;font-size:13px;font-weight:600;
white-space:nowrap}
ul{margin:6px 0 2px;padding-left:18px}li{overflow-wrap:anywhere}
code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.note{color:var(--soft);font-size:13px}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:6px 0;font-size:13px;color:var(--soft)}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
.plot{overflow-x:auto}
svg{width:100%;height:auto;display:block}
.grid{stroke:var(--line);stroke-width:1}.level{stroke:var(--soft);stroke-dasharray:5 4}
.track{fill:var(--card)}
.tick,.name{fill:var(--soft);font-size:11px;font-variant-numeric:tabular-nums}
.name{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.mark{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:3 2}
.segment{fill:#0072b2;fill-opacity:.35;stroke:var(--bg);stroke-width:1}
.pair{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:24px}
@media(max-width:760px){.pair{grid-template-columns:minmax(0,1fr)}
main{padding:20px 14px 40px}h1{font-size:21px;overflow-wrap:anywhere}
.verdict{flex-direction:column;align-items:flex-start;gap:4px;padding:14px 16px}
table{display:block;overflow-x:auto}th,td{padding:6px 8px}
.checks tr{display:flex;flex-wrap:wrap;gap:2px 12px;padding:9px 0;
border-bottom:1px solid var(--line)}
.checks tr:first-child{display:none}.checks tbody{display:block}
.checks td{border:0;padding:0}.checks td:last-child{flex-basis:100%}
.checks td.n{color:var(--soft);font-size:13px}.checks td.n::after{content:" " attr(data-of)}}
"""


def document(title: str, body: str) -> str:
    """Returns the page around its content. `title` is text, `body` is HTML."""
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<main>{body}</main></body></html>\n"
    )
