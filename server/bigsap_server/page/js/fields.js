/** Labelled fields with a help text, which can be marked with what is wrong. */

import { el, freshId, say } from "./dom.js";

/** "4,000" is four thousand, as this page writes it; "0,5" is a half, as others write it. */
function asNumber(text) {
  if (/^-?[1-9]\d{0,2}(,\d{3})+(\.\d*)?$/.test(text)) return Number(text.replaceAll(",", ""));
  return Number(text.replace(/^(-?\d+),(\d+)$/, "$1.$2"));
}

/** Says which texts describe a control; nothing where there are none. */
export function describe(control, ...ids) {
  const said = ids.filter(Boolean).join(" ");
  if (said) control.setAttribute("aria-describedby", said);
  else control.removeAttribute("aria-describedby");
}

/**
 * One labelled control. kind: "number", "text", "select", "textarea", "checkbox".
 * `value()` is undefined where the user left the field alone.
 */
export class Field {
  constructor({ label, help, kind = "text", choices = [], value = "", onChange, ...attributes }) {
    const id = freshId("field");
    this.kind = kind;
    this.label = label;
    this.helpId = `${id}-help`;
    this.errorId = `${id}-error`;
    this.error = el("p", { class: "error", id: this.errorId, hidden: true });
    const shared = {
      id, "aria-describedby": help ? this.helpId : null, ...attributes,
      oninput: () => {
        this.clearMark();
        onChange?.();
      },
    };
    if (kind === "select") {
      this.control = el("select", shared, choices.map(([name, text]) => el("option", { value: name }, text)));
    } else if (kind === "textarea") {
      this.control = el("textarea", { rows: 3, spellcheck: "false", autocapitalize: "off", ...shared });
    } else if (kind === "checkbox") {
      this.control = el("input", { type: "checkbox", ...shared });
    } else {
      // Not type=number: it hides what was typed from scripts when it is not a number.
      this.control = el("input", {
        type: "text", inputmode: kind === "number" ? "decimal" : null, autocomplete: "off",
        spellcheck: "false", ...shared,
      });
    }
    if (value !== "") this.control.value = value;
    this.described = this.control.getAttribute("aria-describedby");
    const text = el("label", { for: id }, label);
    this.node = el("div", { class: `field ${kind}` },
      kind === "checkbox" ? [el("div", { class: "tick" }, this.control, text)] : [text, this.control],
      help && el("p", { class: "help", id: this.helpId }, help), this.error);
  }

  /** undefined: left alone; NaN: not a number (marked by `check`). */
  value() {
    if (this.kind === "checkbox") return this.control.checked;
    const text = this.control.value.trim();
    if (text === "") return undefined;
    return this.kind === "number" ? asNumber(text) : text;
  }

  /** Marks a field whose text is no number; true when all is well. */
  check() {
    if (this.kind !== "number" || !Number.isNaN(this.value())) return true;
    this.fail(`${this.label}: “${this.control.value.trim()}” is not a number.`);
    return false;
  }

  fail(text) {
    this.control.setAttribute("aria-invalid", "true");
    describe(this.control, this.errorId, this.described);
    this.node.classList.add("invalid");
    this.error.hidden = false;
    say(this.error, text);
  }

  clearMark() {
    this.control.removeAttribute("aria-invalid");
    describe(this.control, this.described);
    this.node.classList.remove("invalid");
    this.error.hidden = true;
    say(this.error, "");
  }

  focus() {
    for (let node = this.node.parentElement; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
    }
    this.control.focus();
  }
}
