/**
 * The ways to say a cost: two point sets, a matrix, an expression, a whole JSON document.
 *
 * An editor has `node`, `parts()` (pointer -> field or picker, for marking), `check()` (marks what is
 * wrong, false then) and `document()`: {shape, cost} or JSON text, or null while something is missing.
 */

import { el, fill, freshId } from "./dom.js";
import { Field } from "./fields.js";
import { asMatrix, asPoints, Picker } from "./picker.js";

const METRICS = [
  ["sqeuclidean", "squared Euclidean"],
  ["euclidean", "Euclidean"],
  ["cityblock", "city block (sum of differences)"],
  ["chebyshev", "Chebyshev (largest difference)"],
  ["minkowski", "Minkowski, with its exponent p"],
  ["cosine", "cosine (1 − cosine of the angle)"],
  ["haversine", "haversine (latitude and longitude in radians)"],
];

export class PointsEditor {
  constructor(onChange) {
    const shared = { unit: asPoints, onChange };
    this.x = new Picker({
      ...shared, legend: "First set: one row each",
      help: "A table with a line for each point and a column for each coordinate.",
    });
    this.y = new Picker({
      ...shared, legend: "Second set: one column each",
      help: "As many coordinates as the first set; it may have another number of points.",
    });
    this.metric = new Field({
      label: "Metric", kind: "select", choices: METRICS, value: "sqeuclidean",
      help: "What it costs to match two points.",
      onChange: () => {
        this.#show();
        onChange();
      },
    });
    this.p = new Field({
      label: "Exponent p", kind: "number", placeholder: "2", onChange, help: "1 or more.",
    });
    this.radius = new Field({
      label: "Radius", kind: "number", onChange,
      help: "Of the sphere, in the unit that the costs shall have; 1 when left empty.",
    });
    this.reach = new Field({
      label: "Largest distance", kind: "number", onChange,
      help: "Pairs farther apart are forbidden; with sqeuclidean, a distance, not its square. All are allowed when left empty.",
    });
    this.w = new Field({
      label: "Factors of the dimensions", placeholder: "1, 1", onChange,
      help: "One factor of 0 or more for each coordinate, for a weighted metric; left empty, all count alike.",
    });
    this.node = el("div", { class: "editor" },
      el("div", { class: "pair" }, this.x.node, this.y.node),
      el("div", { class: "fields" },
        this.metric.node, this.p.node, this.radius.node, this.w.node, this.reach.node));
    this.#show();
  }

  #show() {
    this.p.node.hidden = this.metric.value() !== "minkowski";
    this.radius.node.hidden = this.metric.value() !== "haversine";
    this.w.node.hidden = this.metric.value() === "haversine";
  }

  pickers() {
    return [this.x, this.y];
  }

  parts() {
    return {
      "/cost/x": this.x, "/cost/y": this.y, "/cost/metric": this.metric, "/cost/p": this.p,
      "/cost/radius": this.radius, "/cost/w": this.w, "/cost/max_distance": this.reach,
      "/cost": this.x, "/shape": this.x,
    };
  }

  check() {
    const { x, y } = this;
    const fields = [this.p, this.radius, this.reach].filter((field) => !field.node.hidden);
    if (!fields.map((field) => field.check()).every(Boolean)) return false;
    if (this.#factors()?.some(Number.isNaN)) {
      this.w.fail("Factors are numbers with commas between them, such as 1, 0.5.");
      return false;
    }
    if (x.table && y.table && x.table.shape[1] !== y.table.shape[1]) {
      y.fail(`${asPoints(y.table)}, but the first set has ${x.table.shape[1]}: they must agree.`);
      y.problem = null;
      return false;
    }
    y.clearMark();
    return true;
  }

  /** The factors of the dimensions, or undefined when none are given. */
  #factors() {
    if (this.w.node.hidden) return undefined;
    return this.w.value()?.split(/[\s,;]+/).filter(Boolean).map(Number);
  }

  document() {
    const [x, y] = [this.x.reference(), this.y.reference()];
    if (!x || !y) return null;
    const cost = { type: "points", metric: this.metric.value(), x, y };
    if (!this.p.node.hidden) cost.p = this.p.value();
    if (!this.radius.node.hidden) cost.radius = this.radius.value();
    cost.w = this.#factors();
    cost.max_distance = this.reach.value();
    return { shape: [this.x.table.shape[0], this.y.table.shape[0]], cost };
  }
}

export class MatrixEditor {
  constructor(onChange) {
    this.values = new Picker({
      legend: "Cost matrix", unit: asMatrix, onChange,
      help: "The cost of row i and column j in line i, column j. “inf” forbids a pair.",
    });
    this.node = el("div", { class: "editor" }, this.values.node);
  }

  pickers() {
    return [this.values];
  }

  parts() {
    return { "/cost/values": this.values, "/cost": this.values, "/shape": this.values };
  }

  check() {
    return true;
  }

  document() {
    const values = this.values.reference();
    if (!values) return null;
    return { shape: this.values.table.shape, cost: { type: "array", values } };
  }
}

const isName = (text) => /^[A-Za-z_][A-Za-z_0-9]*$/.test(text ?? "");

export class ExpressionEditor {
  constructor(onChange) {
    this.onChange = onChange;
    this.arrays = [];
    this.typed = { rows: false, columns: false };
    this.code = new Field({
      label: "Cost of row i and column j", kind: "textarea", value: "(x[i,0] - y[j,0])**2 + abs(x[i,1] - y[j,1])",
      help: "Numbers, i, j, n, m, + - * / // % **, comparisons, a if c else b, abs sqrt exp log sin cos " +
        "atan2 min max floor hypot where, x[i], x[i,k], and sum(… for k in range(d)).",
      onChange, class: "code",
    });
    const size = (name, label, help) => new Field({
      label, kind: "number", help,
      onChange: () => {
        this.typed[name] = this[name].value() !== undefined;
        onChange();
      },
    });
    this.rows = size("rows", "Rows (n)", "Filled in from the array that [i] stands beside.");
    this.columns = size("columns", "Columns (m)", "Filled in from the array that [j] stands beside.");
    this.list = el("div", { class: "pair" });
    const add = el("button", { type: "button", onclick: () => this.#add("", true) }, "Add an array");
    this.node = el("div", { class: "editor" }, this.code.node, this.list, add,
      el("div", { class: "fields" }, this.rows.node, this.columns.node));
    this.#add("x");
    this.#add("y");
  }

  #add(name, focus = false) {
    const entry = {};
    entry.name = new Field({
      label: "Name in the expression", value: name, help: "A letter or a word.", onChange: this.onChange,
      class: "code",
    });
    entry.picker = new Picker({
      legend: name ? `Array ${name}` : "Another array", unit: asMatrix,
      help: "A line for each row (or column) of the problem.",
      onChange: () => {
        this.#infer();
        this.onChange();
      },
    });
    const remove = el("button", {
      type: "button", class: "quiet",
      onclick: () => {
        entry.picker.close();
        this.arrays = this.arrays.filter((other) => other !== entry);
        entry.node.remove();
        this.code.focus();
        this.onChange();
      },
    }, "Remove this array");
    entry.node = el("div", { class: "named" }, entry.name.node, entry.picker.node, remove);
    this.arrays.push(entry);
    this.list.append(entry.node);
    if (focus) entry.name.focus();
  }

  /** Fills n and m from the arrays subscripted by i and j, unless the user typed them. */
  #infer() {
    const code = this.code.value() ?? "";
    for (const [field, key, index] of [[this.rows, "rows", "i"], [this.columns, "columns", "j"]]) {
      if (this.typed[key]) continue;
      const found = this.arrays.find(({ name, picker }) =>
        picker.table && isName(name.value()) &&
        new RegExp(`(^|\\W)${name.value()}\\s*\\[\\s*${index}\\b`).test(code));
      field.control.value = found ? found.picker.table.shape[0] : "";
    }
  }

  pickers() {
    return this.arrays.map(({ picker }) => picker);
  }

  parts() {
    const parts = {
      "/cost/code": this.code, "/cost": this.code, "/shape/0": this.rows, "/shape/1": this.columns,
      "/shape": this.rows,
    };
    for (const { name, picker } of this.arrays) parts[`/cost/arrays/${name.value() ?? ""}`] = picker;
    return parts;
  }

  check() {
    let fine = true;
    const seen = new Set();
    for (const { name, picker } of this.arrays) {
      const text = name.value() ?? "";
      if (!picker.table) continue;
      if (!isName(text)) {
        name.fail("A name has letters, digits and _ and begins with a letter.");
        fine = false;
      } else if (seen.has(text)) {
        name.fail(`There is another array called ${text}.`);
        fine = false;
      }
      seen.add(text);
    }
    return [this.rows, this.columns].map((field) => field.check()).every(Boolean) && fine;
  }

  document() {
    this.#infer();
    const [code, rows, columns] = [this.code.value(), this.rows.value(), this.columns.value()];
    if (!code || rows === undefined || columns === undefined) return null;
    if (this.arrays.some(({ picker }) => picker.busy)) return null;
    const given = this.arrays.filter(({ picker }) => picker.ready);
    const arrays = Object.fromEntries(given.map(({ name, picker }) => [name.value(), picker.reference()]));
    return { shape: [rows, columns], cost: { type: "expression", code, arrays } };
  }
}

const EXAMPLE = {
  shape: [3, 3],
  cost: {
    type: "forbid_above", threshold: 3,
    cost: { type: "points", metric: "euclidean", x: [[0, 0], [1, 0], [2, 2]], y: [[0, 1], [2, 0], [1, 2]] },
  },
};

/** For all other kinds of cost: the request as the REST call takes it. */
export class DocumentEditor {
  constructor(onChange) {
    this.text = new Field({
      label: "Job document (JSON)", kind: "textarea", rows: 12, class: "code", onChange,
      help: "Shape and cost as POST /v1/jobs takes them; options given here win over those below.",
    });
    const example = el("button", {
      type: "button", class: "quiet",
      onclick: () => {
        this.text.control.value = JSON.stringify(EXAMPLE, null, 2);
        this.text.clearMark();
        onChange();
      },
    }, "Fill in an example");
    this.node = el("div", { class: "editor" }, this.text.node, example);
  }

  pickers() {
    return [];
  }

  parts() {
    return { "": this.text };
  }

  check() {
    if (this.text.value() === undefined) return true;
    try {
      const found = JSON.parse(this.text.value());
      if (found && typeof found === "object" && !Array.isArray(found)) return true;
      this.text.fail("The document must be a JSON object.");
    } catch (error) {
      this.text.fail(`This is not JSON: ${error.message}`);
    }
    return false;
  }

  document() {
    return this.text.value() ?? null;
  }
}

/** Radio buttons that show one editor at a time. */
export function chooser(kinds, onChange) {
  const name = freshId("kind");
  const place = el("div");
  const chosen = { kind: null, editor: null };
  const pick = (kind) => {
    chosen.kind = kind;
    kind.editor ??= kind.make(onChange);
    chosen.editor = kind.editor;
    fill(place, kind.editor.node);
  };
  const radios = kinds.map((kind, k) => {
    const id = freshId("kind");
    const input = el("input", {
      type: "radio", id, name, value: kind.name, checked: k === 0,
      onchange: () => {
        pick(kind);
        onChange();
      },
    });
    return el("div", { class: "choice" }, input, el("label", { for: id }, kind.text));
  });
  pick(kinds[0]);
  const node = el("div", {},
    el("fieldset", { class: "choices" }, el("legend", {}, "What are the costs?"), radios), place);
  return { node, chosen, editors: () => kinds.map((kind) => kind.editor).filter(Boolean) };
}
