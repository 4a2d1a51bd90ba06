"""The page around a report: style, script and the places to fill. Light and dark follow the
reader's system.

build.py fills it. Whatever comes from a run is escaped before it gets here; the policy in the head
forbids the page to load anything from anywhere.
"""

import json
import re
from html import escape
from typing import Any

UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

STYLE = """
:root { color-scheme: light dark; --back: #fff; --card: #f6f7f9; --line: #dfe3e8; --text: #1d232a; --soft: #5d6875;
  --good: #1a7f45; --bad: #c62f2f; --warn: #9a6700; --note: #fff8e1; --noteline: #e3b341; --bar: #4285f4 }
@media (prefers-color-scheme: dark) { :root { --back: #12161b; --card: #1b2128; --line: #313a45; --text: #e3e8ee;
  --soft: #98a4b1; --good: #4cc38a; --bad: #ff7b72; --warn: #e3b341; --note: #2a2413; --noteline: #8a6d1b } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1320px; padding: 24px clamp(12px, 3vw, 36px) 60px; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif }
h1 { font-size: 26px; margin: 0 0 4px; overflow-wrap: anywhere } h2 { font-size: 18px; margin: 34px 0 10px }
h3 { font-size: 14px; margin: 0 0 6px; font-weight: 600; overflow-wrap: anywhere }
.soft { color: var(--soft) } .small { font-size: 13px } p { margin: 6px 0; overflow-wrap: anywhere }
.state { display: inline-block; padding: 1px 10px; border-radius: 11px; font-size: 14px; font-weight: 600;
  vertical-align: middle; border: 1px solid currentColor; color: var(--soft); white-space: nowrap }
.completed { color: var(--good) } .failed, .timeout { color: var(--bad) } .cancelled, .unknown { color: var(--warn) }
.cause { border-left: 4px solid var(--bad); padding: 6px 12px; background: var(--card); overflow-wrap: anywhere }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 10px; margin: 16px 0 }
.facts div { background: var(--card); border-radius: 8px; padding: 8px 12px; overflow-wrap: anywhere }
.facts b { display: block; font-size: 18px; font-weight: 600 } .facts span { color: var(--soft); font-size: 13px }
.notes { list-style: none; padding: 0; margin: 0; display: grid; gap: 8px }
.notes li { border-left: 4px solid var(--noteline); background: var(--note); padding: 8px 12px;
  overflow-wrap: anywhere }
.notes li.problem { border-color: var(--bad) } code { font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace }
.notes code { font-weight: 600 }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 16px }
.chart { background: var(--card); border-radius: 8px; padding: 12px; min-width: 0 }
.plot { width: 100%; min-height: 60px }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: 14px }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--soft); font-weight: 500; white-space: nowrap } td { overflow-wrap: anywhere; min-width: 5ch }
td:first-child { white-space: nowrap } .runs td { white-space: nowrap; overflow-wrap: normal }
.runs td:first-child { white-space: normal; min-width: 20ch; overflow-wrap: break-word }
.runs td:nth-child(3) { white-space: normal; min-width: 16ch; max-width: 60ch }
.runs .all { white-space: normal; min-width: 60ch }
.tries td { white-space: nowrap } .tries td:nth-child(6) { white-space: normal; min-width: 24ch }
.tries td:nth-child(-n+5), .tries th:nth-child(-n+5) { text-align: right } .tries { width: auto }
pre { background: var(--card); border-radius: 8px; padding: 12px; overflow: auto; max-height: 480px; margin: 8px 0;
  font: 12.5px/1.45 ui-monospace, Menlo, Consolas, monospace }
details { border-top: 1px solid var(--line); padding: 10px 0 }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 8px 32px }
button.key { all: unset; cursor: pointer; display: inline-flex; gap: 8px; align-items: center }
button.key:focus-visible { outline: 2px solid var(--bar) }
button.key.off { opacity: .35; text-decoration: line-through }
.swatch { width: 14px; height: 14px; border-radius: 3px; flex: none }
#vg-tooltip-element { font-size: 13px; max-width: min(460px, 92vw) } @media print { details { break-inside: avoid } }
"""

SCRIPT = """
const page = JSON.parse(document.getElementById('page-data').textContent);
const hidden = new Set();
const plain = text => String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
const scheme = window.matchMedia('(prefers-color-scheme: dark)');
function rows(chart) {
  const found = [];
  for (const line of chart.series) {
    if (hidden.has(line.run)) continue;
    line.xs.forEach((x, i) => found.push({run: line.run, kind: line.kind, x: x, y: line.ys[i]}));
  }
  return found;
}
function marks(chart) {
  return page.marks[chart.marks].filter(mark => !hidden.has(mark.run)).map(mark => Object.assign({}, mark));
}
function look() {
  const style = getComputedStyle(document.documentElement);
  const [text, soft, line] = ['--text', '--soft', '--line'].map(name => style.getPropertyValue(name).trim());
  const axis = {labelColor: soft, titleColor: soft, gridColor: line, domainColor: line, tickColor: line,
                titleFontWeight: 'normal', labelFontSize: 12, titleFontSize: 12};
  return {background: 'transparent', view: {stroke: null}, axis: axis, font: 'system-ui, sans-serif',
          legend: {labelColor: text, titleColor: soft, labelFontSize: 12, symbolStrokeWidth: 2.5}};
}
let views = [];
async function draw() {
  views.forEach(view => view.finalize());
  views = [];
  for (const [index, chart] of page.charts.entries()) {
    const place = document.getElementById('plot-' + index);
    const spec = Object.assign({}, chart.spec, {datasets: {points: rows(chart), marks: marks(chart)}});
    try {
      views.push(await vegaEmbed(place, spec, {actions: false, renderer: 'canvas', config: look(),
        tooltip: {theme: scheme.matches ? 'dark' : 'light', sanitize: plain}}));
    } catch (error) {
      place.textContent = 'this chart could not be drawn: ' + error;
    }
  }
  document.body.dataset.drawn = views.length;
}
document.querySelectorAll('button.key').forEach((button, index) => button.addEventListener('click', () => {
  const run = page.runs[index];
  if (!hidden.delete(run)) hidden.add(run);
  button.classList.toggle('off', hidden.has(run));
  button.setAttribute('aria-pressed', String(!hidden.has(run)));
  draw();
}));
scheme.addEventListener('change', draw);
draw();
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data:">
<title>%title%</title>
<style>%style%</style>
</head>
<body>
%body%
<noscript><p>The charts need JavaScript; all else is here without it.</p></noscript>
<script type="application/json" id="page-data">%data%</script>
<script>%bundle%</script>
<script>%script%</script>
</body>
</html>
"""  # noqa: E501


def fill(title: str, body: str, data: Any, bundle: str) -> str:
    """The whole page. `body` is HTML already; the other parts are made safe here."""
    parts = {"title": text(title), "body": body, "data": script_json(data)}
    parts |= {"style": STYLE, "script": SCRIPT if bundle else "", "bundle": bundle}
    return re.sub(r"%(\w+)%", lambda place: parts[place[1]], PAGE)


def text(value: Any) -> str:
    """Anything from a run, as text that a browser only shows."""
    return escape(UNPRINTABLE.sub("\ufffd", str(value)))


def script_json(value: Any) -> str:
    """JSON that can't end the script element it stands in."""
    dumped = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return dumped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
