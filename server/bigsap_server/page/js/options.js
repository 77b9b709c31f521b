/** The options of a job, each with what it does. */

import { el } from "./dom.js";
import { Field } from "./fields.js";

/** Options that most people set; the others are behind a heading of their own. */
const USUAL = new Set(["maximize", "method", "gap", "time_limit_s", "unassigned_cost", "threads", "memory_limit"]);
const NUMBERS = new Set(["count", "number", "seconds", "costs", "counts"]);

/** "a phrase" of the service's table as a sentence. */
function sentence(text) {
  return text && `${text[0].toUpperCase()}${text.slice(1)}.`;
}

/** A field for an option as the service's capabilities describe it. */
function optionField({ label, help, kind, choices, default: usual }, onChange) {
  const shared = { label, help: sentence(help), onChange };
  if (kind === "choice") {
    return new Field({ ...shared, kind: "select", value: usual, choices: choices.map((name) => [name, name]) });
  }
  if (kind === "flag") return new Field({ ...shared, kind: "checkbox", checked: usual === true });
  const placeholder = usual === null || usual === undefined ? "default" : String(usual);
  return new Field({ ...shared, kind: NUMBERS.has(kind) ? "number" : "text", placeholder });
}

/** The option fields, as the service's capabilities name them. */
export class Options {
  constructor(known, onChange) {
    const field = (settings) => new Field({ ...settings, onChange });
    this.label = field({
      label: "Label", maxlength: 200, help: "A name to find this job by; anything, or nothing.",
    });
    this.usual = Object.fromEntries(known.options.map((one) => [one.name, one.default]));
    this.fields = Object.fromEntries(known.options.map((one) => [one.name, optionField(one, onChange)]));
    this.spread = field({
      label: "Spread over workers", kind: "checkbox",
      help: "Rows of costs are evaluated by the idle workers of the cluster too. The result is the same.",
    });
    this.spread.node.hidden = !known.spread;
    this.warmStart = field({
      label: "Start from job", placeholder: "none", class: "code",
      help: "The id of a job of the same size: similar costs are then solved sooner.",
    });
    this.kBest = field({
      label: "Best assignments", kind: "number", placeholder: "1",
      help: "So many are ranked, the best first, in exact order; the costs of the first are shown.",
    });
    const nodes = (chosen) => Object.entries(this.fields)
      .filter(([name, one]) => chosen(name, one.kind === "checkbox"))
      .map(([, one]) => one.node);
    this.node = el("details", { class: "card" },
      el("summary", {}, el("h2", {}, "Options")),
      nodes((name, tick) => tick && USUAL.has(name)), this.spread.node,
      el("div", { class: "fields" }, nodes((name, tick) => !tick && USUAL.has(name)), this.warmStart.node),
      el("details", {},
        el("summary", {}, "More options"),
        nodes((name, tick) => tick && !USUAL.has(name)),
        el("div", { class: "fields" }, nodes((name, tick) => !tick && !USUAL.has(name)), this.kBest.node)));
  }

  parts() {
    const named = Object.entries(this.fields).map(([name, one]) => [`/options/${name}`, one]);
    return {
      ...Object.fromEntries(named),
      "/label": this.label, "/warm_start": this.warmStart, "/spread": this.spread, "/k_best": this.kBest,
    };
  }

  check() {
    return [...Object.values(this.fields), this.kBest].map((one) => one.check()).every(Boolean);
  }

  /** Only what the user set: everything else is the service's default. */
  document() {
    const options = {};
    for (const [name, one] of Object.entries(this.fields)) {
      const value = one.value();
      if (value !== undefined && value !== this.usual[name]) {
        options[name] = value;
      }
    }
    const found = {};
    if (Object.keys(options).length) found.options = options;
    if (this.warmStart.value()) found.warm_start = { job: this.warmStart.value() };
    if (this.spread.value()) found.spread = true;
    if (this.kBest.value() !== undefined) found.k_best = this.kBest.value();
    if (this.label.value()) found.label = this.label.value();
    return found;
  }
}
