/** Choosing one table of numbers: a file, or numbers pasted into a box. */

import { arrays } from "./api.js";
import { el, freshId, say } from "./dom.js";
import { describe } from "./fields.js";
import { asLists, FileProblem, readCsv, readFile } from "./files.js";
import { upload } from "./uploads.js";
import { bytes, count, percent, plural } from "./words.js";

/** What the service takes as nested lists inside a spec; more is uploaded. */
export const limits = { inline: 10_000 };

const TYPING = 500; // ms of quiet before pasted numbers are read

/**
 * A fieldset with a file field and a box. Call `reference()` for what goes into the spec.
 *
 * legend, help: texts. unit: (table) => sentence about what was read. onChange(): called when the
 * table changes and when its upload has ended.
 */
export class Picker {
  constructor({ legend, help, unit, onChange }) {
    this.table = null;
    this.problem = null;
    this.unit = unit;
    this.onChange = onChange;
    this.name = "";
    this.lists = null;
    this.id = null;
    this.uploading = null;
    this.aborter = null;
    this.round = 0;
    this.created = null; // an array on the service that no job uses yet

    const ids = {
      file: freshId("file"), text: freshId("paste"), help: freshId("help"), status: freshId("picked"),
    };
    this.ids = ids;
    this.status = el("p", { class: "picked", role: "status", id: ids.status });
    this.bar = el("progress", { max: 1, value: 0, hidden: true, "aria-label": `Upload: ${legend}` });
    this.file = el("input", {
      id: ids.file, type: "file", accept: ".npy,.csv,.tsv,.txt,text/csv",
      "aria-describedby": ids.help, onchange: () => this.#fromFile(),
      // A file that was mended may be chosen again: browsers tell of another name only.
      onclick: () => {
        this.file.value = "";
      },
      oncancel: () => this.#fromFile(),
    });
    this.text = el("textarea", {
      id: ids.text, rows: 4, spellcheck: "false", autocomplete: "off", "aria-describedby": ids.help,
      placeholder: "0.5, 1.25\n0.75, 2", oninput: () => this.#later(),
    });
    this.node = el("fieldset", { class: "picker" },
      el("legend", {}, legend),
      el("label", { for: ids.file }, "File (npy or CSV)"), this.file,
      el("p", { class: "help", id: ids.help }, help),
      el("details", {},
        el("summary", {}, "or paste numbers"),
        el("label", { for: ids.text }, "Numbers, one row a line"), this.text),
      this.bar, this.status);
  }

  #later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const text = this.text.value;
      if (text.trim() === "") this.#take(null, "");
      else this.#take(readCsv(text, "The pasted text"), "pasted text");
    }, TYPING);
  }

  #fromFile() {
    const file = this.file.files[0];
    if (file) this.text.value = "";
    this.#take(file ? readFile(file) : null, file?.name ?? "");
  }

  async #take(reading, name) {
    this.round += 1;
    const round = this.round;
    this.aborter?.abort();
    this.#discard();
    Object.assign(this, { table: null, problem: null, lists: null, id: null, uploading: null, name });
    this.bar.hidden = true;
    this.#unmark();
    if (!reading) {
      say(this.status, "");
      this.onChange();
      return;
    }
    say(this.status, `Reading ${name} …`);
    try {
      const table = await reading;
      const numbers = table.shape[0] * table.shape[1];
      const lists = numbers <= limits.inline ? await asLists(table) : null;
      if (round !== this.round) return;
      Object.assign(this, { table, lists });
      say(this.status, this.#sentence());
      this.onChange();
      if (!lists) await this.#send(table, round);
    } catch (error) {
      if (round !== this.round || error.name === "AbortError") return;
      this.table = null;
      this.fail(error instanceof FileProblem ? error.message : `Not usable: ${error.message}`);
      this.onChange();
    }
  }

  async #send(table, round) {
    this.aborter = new AbortController();
    this.bar.hidden = false;
    this.bar.value = 0;
    this.uploading = upload(table, {
      signal: this.aborter.signal,
      onCreated: (id) => {
        this.created = id;
        if (round !== this.round) this.#discard();
      },
      onProgress: (part) => {
        if (round !== this.round) return;
        this.bar.value = part;
        this.bar.textContent = percent(part);
      },
    });
    const id = await this.uploading;
    if (round !== this.round) return;
    this.id = id;
    this.uploading = null;
    this.bar.hidden = true;
    say(this.status, `${this.#sentence()} Uploaded (${bytes(this.#size())}).`);
    this.onChange();
  }

  #size() {
    return this.table.shape[0] * this.table.shape[1] * this.table.itemsize;
  }

  #sentence() {
    return `${this.unit(this.table)} from ${this.name}.`;
  }

  /** Marks the picker with what is wrong. */
  fail(text) {
    this.problem = text;
    this.node.classList.add("invalid");
    for (const control of [this.file, this.text]) {
      control.setAttribute("aria-invalid", "true");
      describe(control, this.ids.status, this.ids.help);
    }
    say(this.status, text);
  }

  #unmark() {
    this.node.classList.remove("invalid");
    for (const control of [this.file, this.text]) {
      control.removeAttribute("aria-invalid");
      describe(control, this.ids.help);
    }
  }

  clearMark() {
    if (!this.problem) this.#unmark();
  }

  get busy() {
    return this.table !== null && this.lists === null && this.id === null;
  }

  get ready() {
    return this.lists !== null || this.id !== null;
  }

  /** The array as the spec wants it: nested lists, or the id of an upload; null when not ready. */
  reference() {
    if (this.id) return { array: this.id };
    if (!this.lists) return null;
    return this.table.vector ? this.lists.map(([value]) => value) : this.lists;
  }

  /** Waits for an upload under way. */
  async settled() {
    if (this.uploading) await this.uploading.catch(() => {});
  }

  focus() {
    this.file.focus();
  }

  /** An uploaded array belongs to a job from now on. */
  keep() {
    this.created = null;
  }

  /** Stops an upload and takes back an array that no job uses. */
  close() {
    clearTimeout(this.timer);
    this.round += 1;
    this.aborter?.abort();
    this.#discard();
  }

  #discard() {
    // Best effort: an array left behind does no harm, and nobody waits for this.
    if (this.created) arrays.remove(this.created).catch(() => {});
    this.created = null;
  }
}

/** "3,000 points in 2 dimensions". */
export const asPoints = (table) =>
  `${plural(table.shape[0], "point")} in ${plural(table.shape[1], "dimension")}`;

/** "300 × 200 numbers". */
export const asMatrix = (table) => `${count(table.shape[0])} × ${count(table.shape[1])} numbers`;
