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
