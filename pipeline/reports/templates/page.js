"use strict";
(() => {
const root = document.documentElement;
const theme = document.getElementById("theme");
theme.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
addEventListener("beforeprint", () => draw(true));
addEventListener("afterprint", () => draw());

for (const block of document.querySelectorAll(".data")) {
  const table = block.querySelector("table"), body = table.tBodies[0], rows = [...body.rows];
  const count = block.querySelector(".n"), search = block.querySelector("input");
  const words = rows.map(row => row.textContent.toLowerCase());
  const tell = n => { count.textContent = n === rows.length ? `${n} ${n === 1 ? "row" : "rows"}` : `${n} of ${rows.length} rows`; };
  tell(rows.length);
  search.addEventListener("input", () => {
    const parts = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let n = 0;
    rows.forEach((row, i) => { const on = parts.every(part => words[i].includes(part)); row.hidden = !on; n += on; });
    tell(n);
  });
  const key = (row, i) => { const cell = row.cells[i]; return cell.dataset.k === undefined ? cell.textContent : Number(cell.dataset.k); };
  [...table.tHead.rows[0].cells].forEach((head, i) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down === 1 ? "ascending" : "descending");
    const numbers = rows.some(row => row.cells[i].dataset.k !== undefined);
    const sorted = rows.map((row, at) => [key(row, i), at, row]);
    const missing = v => numbers && typeof v !== "number";
    sorted.sort((a, b) => missing(a[0]) - missing(b[0]) || (missing(a[0]) ? 0 : numbers ? down * (a[0] - b[0]) : down * a[0].localeCompare(b[0], "en", {numeric: true})) || a[1] - b[1]);
    body.append(...sorted.map(entry => entry[2]));
  }));
  block.querySelector(".copy").addEventListener("click", async event => {
    const lines = [[...table.tHead.rows[0].cells], ...[...body.rows].filter(row => !row.hidden).map(row => [...row.cells])];
    const text = lines.map(cells => cells.map(cell => cell.textContent.trim()).join("\t")).join("\n");
    const button = event.currentTarget;
    let ok = true;
    try { await navigator.clipboard.writeText(text); } catch {
      const area = document.createElement("textarea");
      area.value = text; document.body.append(area); area.select(); ok = document.execCommand("copy"); area.remove();
    }
    button.textContent = ok ? "copied" : "can't copy";
    setTimeout(() => { button.textContent = "copy"; }, 1200);
  });
}

const source = document.getElementById("heat-data");
const heat = source ? JSON.parse(source.textContent) : null;
let chosen = 0;
const hex = text => { const v = parseInt(text.trim().slice(1), 16); return [v >> 16, v >> 8 & 255, v & 255]; };
const time = us => us === null ? `no such ${heat.unit}` : us >= 1e6 ? `${(us / 1e6).toPrecision(3)} s` : us >= 1e3 ? `${(us / 1e3).toPrecision(3)} ms` : `${us} µs`;
const spans = heat ? heat.layers.map(layer => {
  // Steps left out of the statistics (warm-up, evaluation) have their colour cut off, so that the others can be told apart.
  const any = heat.scale.some(Boolean);
  let low = Infinity, high = -Infinity, more = false;
  for (const line of layer.us) line.forEach((v, x) => {
    if (v === null || any && !heat.scale[x]) return;
    if (v < low) low = v;
    if (v > high) high = v;
  });
  if (low > high) low = high = 0;
  for (const line of layer.us) for (const v of line) if (v !== null && v > high) more = true;
  return [low, high, more];
}) : [];
function paint(canvas, at) {
  const style = getComputedStyle(root), stops = ["--heat0", "--heat1", "--heat2"].map(name => hex(style.getPropertyValue(name)));
  const hole = hex(style.getPropertyValue("--hole")), us = heat.layers[at].us;
  canvas.width = Math.max(heat.steps.length, 1); canvas.height = Math.max(heat.ranks.length, 1);
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  const [low, high] = spans[at], span = high - low || 1;
  us.forEach((line, y) => line.forEach((value, x) => {
    const p = value === null ? 0 : 2 * Math.min(Math.max((value - low) / span, 0), 1), i = Math.min(Math.floor(p), 1), q = p - i;
    const rgb = value === null ? hole : stops[i].map((c, n) => c + (stops[i + 1][n] - c) * q);
    image.data.set([rgb[0], rgb[1], rgb[2], 255], 4 * (y * canvas.width + x));
  }));
  context.putImageData(image, 0, 0);
}
function draw() {
  if (!heat) return;
  const main = document.getElementById("heat-main");
  paint(main, chosen);
  const room = Math.min(380, Math.max(26, 420 / heat.ranks.length) * heat.ranks.length);
  main.style.height = `${Math.max(34, Math.min(room, heat.ranks.length * 26))}px`;
  const layer = heat.layers[chosen];
  document.getElementById("heat-name").textContent = layer.label;
  document.getElementById("heat-low").textContent = time(spans[chosen][0]);
  document.getElementById("heat-high").textContent = time(spans[chosen][1]) + (spans[chosen][2] ? " or more" : "");
  document.getElementById("heat-evidence").textContent = layer.evidence;
  document.querySelectorAll(".thumbs button").forEach((button, i) => {
    button.setAttribute("aria-pressed", String(i === chosen));
    paint(button.querySelector("canvas"), i);
  });
}
if (heat) {
  const thumbs = document.querySelector(".thumbs"), tip = document.getElementById("heat-tip"), main = document.getElementById("heat-main");
  heat.layers.forEach((layer, i) => {
    const button = document.createElement("button");
    button.type = "button"; button.textContent = layer.label; button.title = layer.name;
    button.append(document.createElement("canvas"));
    button.addEventListener("click", () => { chosen = i; tip.textContent = ""; draw(); });
    thumbs.append(button);
  });
  main.addEventListener("pointermove", event => {
    const box = main.getBoundingClientRect();
    const x = Math.min(Math.floor((event.clientX - box.left) / box.width * heat.steps.length), heat.steps.length - 1);
    const y = Math.min(Math.floor((event.clientY - box.top) / box.height * heat.ranks.length), heat.ranks.length - 1);
    if (x < 0 || y < 0) return;
    const value = heat.layers[chosen].us[y][x], wall = heat.layers[0].us[y][x];
    const step = heat.per > 1 ? `${heat.unit}s ${heat.steps[x]} and the ${heat.per - 1} after it, largest` : `${heat.unit} ${heat.steps[x]}`;
    const share = chosen && value !== null && wall ? `, ${(100 * value / wall).toFixed(1)} % of ${time(wall)}` : "";
    tip.textContent = `rank ${heat.ranks[y]}, ${step}: ${heat.layers[chosen].label} ${time(value)}${share}`;
  });
  draw();
}
root.dataset.ready = "yes";
})();
