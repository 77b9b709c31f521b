/** A picture of a matching of points in the plane: both sets and their links. */

import { el } from "./dom.js";
import { count } from "./words.js";

const MARGIN = 14; // px

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A figure with a canvas of what the service has chosen to be drawn (its schema `Picture`). */
export function picture({ shape: [n, m], assigned, x, y, links }, signal) {
  const shown = links.length < assigned
    ? `${count(links.length)} of ${count(assigned)} links, evenly chosen`
    : `all ${count(links.length)} links`;
  const canvas = el("canvas", {
    role: "img",
    "aria-label": `Picture of the matching: ${count(n)} points of the first set and ${count(m)} of the second, ${shown}.`,
  });
  const key = el("ul", { class: "key" },
    el("li", { class: "first" }, `first set (${count(n)})`),
    el("li", { class: "second" }, `second set (${count(m)})`),
    el("li", { class: "link" }, shown));
  const figure = el("figure", { class: "matching", id: "matching" }, canvas, el("figcaption", {}, key));
  const all = [x, y, links.map(([a, b]) => [a, b]), links.map(([, , a, b]) => [a, b])].flat();
  const [spanX, spanY] = [0, 1].map((axis) => all.reduce((most, at) => Math.max(most, at[axis]), 1));

  function draw() {
    const wide = figure.clientWidth;
    if (!wide) return;
    const scale = Math.min((wide - 2 * MARGIN) / spanX, (Math.min(wide, 640) - 2 * MARGIN) / spanY);
    const high = Math.ceil(spanY * scale + 2 * MARGIN);
    const dots = window.devicePixelRatio || 1;
    Object.assign(canvas, { width: wide * dots, height: high * dots });
    const pen = canvas.getContext("2d");
    pen.scale(dots, dots);
    const left = (wide - spanX * scale) / 2;
    const place = (a, b) => [left + a * scale, high - MARGIN - b * scale];
    pen.strokeStyle = colour("--link-line");
    pen.lineWidth = links.length > 500 ? 0.6 : 1.2;
    pen.beginPath();
    for (const [a, b, c, d] of links) {
      pen.moveTo(...place(a, b));
      pen.lineTo(...place(c, d));
    }
    pen.stroke();
    const radius = n + m > 2000 ? 1.4 : n + m > 300 ? 2.2 : 3.5;
    pen.fillStyle = colour("--set-2");
    for (const at of y) {
      const [a, b] = place(...at);
      pen.fillRect(a - radius, b - radius, 2 * radius, 2 * radius);
    }
    pen.fillStyle = colour("--set-1");
    for (const at of x) {
      pen.beginPath();
      pen.arc(...place(...at), radius, 0, 2 * Math.PI);
      pen.fill();
    }
    figure.dataset.drawn = String(links.length);
  }

  let wide = 0;
  const watcher = new ResizeObserver(() => {
    if (figure.clientWidth !== wide) {
      wide = figure.clientWidth;
      draw();
    }
  });
  watcher.observe(figure);
  document.addEventListener("bigsap-theme", draw, { signal });
  signal.addEventListener("abort", () => watcher.disconnect());
  return figure;
}
