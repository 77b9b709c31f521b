/** The options of a job, each with what it does. */

import { el } from "./dom.js";
import { Field } from "./fields.js";

const METHODS = {
  auto: "automatic",
  ssp: "ssp: dense rows (Algorithm 1015)",
  compressed: "compressed rows",
};
const DEVICES = { auto: "automatic", cpu: "CPU", cuda: "GPU (CUDA)" };

/** The option fields; methods and devices as the service's capabilities name them. */
export class Options {
  constructor(known, onChange) {
    const field = (settings) => new Field({ ...settings, onChange });
    const select = (label, names, words, help) => field({
      label, help, kind: "select", value: "auto", choices: names.map((name) => [name, words[name] ?? name]),
    });
    this.label = field({
      label: "Label", maxlength: 200, help: "A name to find this job by; anything, or nothing.",
    });
    this.fields = {
      maximize: field({
        label: "Maximise", kind: "checkbox",
        help: "Find the assignment with the largest total instead of the smallest.",
      }),
      method: select("Method", known.methods, METHODS, "Automatic fits nearly always; the result is the same."),
      gap: field({
        label: "Gap", kind: "number", placeholder: "0",
        help: "Stop when the cost is proved to be within this much of the best, in cost units. 0: exact.",
      }),
      time_limit_s: field({
        label: "Time limit (s)", kind: "number", placeholder: "none",
        help: "Stop after this many seconds with the best bound so far.",
      }),
      cache: field({
        label: "Row cache", placeholder: "automatic",
        help: "Memory for rows that are used again, such as 4GiB. More saves evaluations.",
      }),
      memory_limit: field({
        label: "Memory limit", placeholder: "none",
        help: "Most memory beside the costs themselves, such as 8GiB.",
      }),
      unassigned_cost: field({
        label: "Price of leaving a row out", kind: "number", placeholder: "every row is matched",
        help: "A row may stay unmatched at this price, where that makes the total better.",
      }),
      threads: field({
        label: "Threads", kind: "number", placeholder: "automatic",
        help: "The result does not depend on it.",
      }),
      device: select("Device", known.devices, DEVICES, "Where the work is done."),
      checkpoint_s: field({
        label: "Checkpoint every (s)", kind: "number", placeholder: "60",
        help: "How often the state is saved; an interrupted job continues from there.",
      }),
    };
    this.spread = field({
      label: "Spread over workers", kind: "checkbox",
      help: "Rows of costs are evaluated by the idle workers of the cluster too. The result is the same.",
    });
    this.spread.node.hidden = !known.spread;
    this.warmStart = field({
      label: "Start from job", placeholder: "none", class: "code",
      help: "The id of a job of the same size: similar costs are then solved sooner.",
    });
    const { maximize, ...others } = this.fields;
    this.node = el("details", { class: "card" },
      el("summary", {}, el("h2", {}, "Options")),
      maximize.node, this.spread.node,
      el("div", { class: "fields" }, Object.values(others).map((one) => one.node), this.warmStart.node));
  }

  parts() {
    const named = Object.entries(this.fields).map(([name, one]) => [`/options/${name}`, one]);
    return { ...Object.fromEntries(named), "/label": this.label, "/warm_start": this.warmStart, "/spread": this.spread };
  }

  check() {
    return Object.values(this.fields).map((one) => one.check()).every(Boolean);
  }

  /** Only what the user set: everything else is the service's default. */
  document() {
    const options = {};
    for (const [name, one] of Object.entries(this.fields)) {
      const value = one.value();
      if (value !== undefined && value !== false && !(one.kind === "select" && value === "auto")) {
        options[name] = value;
      }
    }
    const found = {};
    if (Object.keys(options).length) found.options = options;
    if (this.warmStart.value()) found.warm_start = { job: this.warmStart.value() };
    if (this.spread.value()) found.spread = true;
    if (this.label.value()) found.label = this.label.value();
    return found;
  }
}
