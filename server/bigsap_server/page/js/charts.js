/** Curves of a running job, drawn by uPlot in the page's colours. */

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { el, say } from "./dom.js";
import { brief, distance, duration, rough } from "./words.js";

const KEEP = 4000; // points a curve; beyond, every other one of the older half is let go
const HEIGHT = 180;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A curve over seconds. log: values on a logarithmic axis, where 0 has no place. */
class Curve {
  constructor({ title, log = false, words, axis }) {
    Object.assign(this, { title, log, words, axis });
    this.x = [];
    this.y = [];
    this.caption = el("figcaption", {}, title);
    this.place = el("div", { class: "plot", role: "img", "aria-label": `${title}: nothing yet` });
    this.node = el("figure", { class: "curve" }, this.caption, this.place);
    this.plot = null;
  }

  add(seconds, value) {
    if (value == null || !Number.isFinite(value) || (this.log && value <= 0)) return false;
    // A new attempt may tell a time again; uPlot wants them in order.
    if (this.x.length && seconds <= this.x.at(-1)) seconds = this.x.at(-1) + 1e-3;
    this.x.push(seconds);
    this.y.push(value);
    if (this.x.length > KEEP) this.#thin();
    return true;
  }

  #thin() {
    const half = this.x.length / 2;
    const kept = (_, k) => k >= half || k % 2 === 0;
    this.x = this.x.filter(kept);
    this.y = this.y.filter(kept);
  }

  draw() {
    if (this.x.length === 0 || !this.place.isConnected) return;
    const last = this.words(this.y.at(-1));
    say(this.caption, `${this.title}: ${last}`);
    this.place.setAttribute("aria-label", `${this.title}: ${last} after ${duration(this.x.at(-1))}, ` +
      `from ${this.words(this.y[0])}`);
    if (this.plot) this.plot.setData([this.x, this.y]);
    else this.#make();
  }

  #make() {
    const grid = { stroke: colour("--line"), width: 1 };
    const shared = { stroke: colour("--dim"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const filter = (_, ticks) => decades(ticks);
    const sparse = this.log ? { filter, grid: { ...grid, filter }, ticks: { ...grid, filter } } : {};
    this.plot = new uPlot({
      width: Math.max(120, this.place.clientWidth), height: HEIGHT, legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false }, y: this.log ? { distr: 3 } : {} },
      axes: [
        { ...shared, values: (_, ticks) => ticks.map((tick) => clock(tick)) },
        { ...shared, ...sparse, size: 58, values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : this.axis(tick))) },
      ],
      series: [{}, { stroke: colour("--accent"), width: 2, points: { show: (plot) => plot.data[0].length < 3 } }],
    }, [this.x, this.y], this.place);
  }

  /** Draws anew, in other colours or at another width. */
  renew() {
    this.plot?.destroy();
    this.plot = null;
    this.draw();
  }

  resize() {
    this.plot?.setSize({ width: Math.max(120, this.place.clientWidth), height: HEIGHT });
  }

  close() {
    this.plot?.destroy();
  }
}

/** 0.1, 10, 1e-5. */
const power = (value) => (value >= 1e-3 && value < 1e4 ? String(Number(value.toPrecision(1))) : value.toExponential(0));

const isDecade = (value) => Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6;

/** Of nine ticks a decade one will do, where the axis spans decades. */
function decades(ticks) {
  const found = ticks.map((tick) => (isDecade(tick) ? tick : null));
  return found.filter((tick) => tick !== null).length > 1 ? found : ticks;
}

function clock(seconds) {
  if (seconds < 120) return `${Number(seconds.toFixed(2))} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 120 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}

/** The curves of a job: rows evaluated, epsilon, gap. Feed `add`; redraws once a frame at most. */
export class Curves {
  constructor() {
    this.rows = new Curve({ title: "Rows evaluated", words: (n) => n.toLocaleString("en"), axis: brief });
    this.epsilon = new Curve({ title: "Epsilon", log: true, words: rough, axis: power });
    this.gap = new Curve({ title: "Gap", log: true, words: distance, axis: power });
    this.all = [this.rows, this.epsilon, this.gap];
    this.node = el("div", { class: "curves" }, this.all.map((curve) => curve.node));
    this.gap.node.hidden = true;
    this.frame = 0;
    this.watcher = new ResizeObserver(() => this.all.forEach((curve) => curve.resize()));
    this.all.forEach((curve) => this.watcher.observe(curve.place));
    this.renew = () => this.all.forEach((curve) => curve.renew());
    document.addEventListener("bigsap-theme", this.renew);
  }

  add(seconds, progress) {
    this.rows.add(seconds, progress.rows_evaluated);
    this.epsilon.add(seconds, progress.epsilon);
    if (this.gap.add(seconds, gapOf(progress))) this.gap.node.hidden = false;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.all.forEach((curve) => curve.draw());
    });
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.watcher.disconnect();
    document.removeEventListener("bigsap-theme", this.renew);
    this.all.forEach((curve) => curve.close());
  }
}

/** Distance of the bounds, null while one of them is missing. */
export function gapOf(progress) {
  if (progress.gap != null) return progress.gap;
  const { lower_bound: lower, upper_bound: upper } = progress;
  return lower == null || upper == null ? null : Math.abs(upper - lower);
}
