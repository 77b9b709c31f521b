/** The page that makes a job: costs, options, what it will need, submit. */

import { capabilities, jobs } from "./api.js";
import { chooser, DocumentEditor, ExpressionEditor, MatrixEditor, PointsEditor } from "./costs.js";
import { el, fact, fill, say } from "./dom.js";
import { withMembers } from "./jsontext.js";
import { Options } from "./options.js";
import { limits } from "./picker.js";
import { showProblem } from "./problems.js";
import { asSentence, bytes, count, duration } from "./words.js";

const PAUSE = 350; // ms of quiet before the service is asked for an estimate

const KINDS = [
  { name: "points", text: "Two point sets", make: (changed) => new PointsEditor(changed) },
  { name: "matrix", text: "A matrix", make: (changed) => new MatrixEditor(changed) },
  { name: "expression", text: "An expression", make: (changed) => new ExpressionEditor(changed) },
  { name: "document", text: "A JSON document", make: (changed) => new DocumentEditor(changed) },
];

async function knownOptions() {
  const known = await capabilities().catch(() => ({}));
  limits.inline = known.limits?.inline_numbers ?? limits.inline;
  return {
    options: known.options ?? [],
    spread: known.spread === true,
  };
}

/** Shows the page in `main`; returns a function that ends it. */
export async function showNewJob(main, { signal }) {
  const known = await knownOptions();
  if (signal.aborted) return;
  let timer = 0;
  let asking = null;
  // One submission, however often its button is pressed or the connection lost.
  let idempotency = null;

  const changed = () => {
    idempotency = null;
    clearTimeout(timer);
    timer = setTimeout(estimate, PAUSE);
  };
  const costs = chooser(KINDS, () => {
    fill(problem);
    changed();
  });
  const options = new Options(known, changed);
  const problem = el("div", { role: "alert" });
  const needs = el("div", { role: "status", id: "estimate" });
  const submit = el("button", { type: "submit", class: "primary" }, "Submit the job");
  const form = el("form", { novalidate: true, onsubmit: (event) => send(event) },
    el("section", { class: "card" }, costs.node),
    options.node,
    el("section", { class: "card", "aria-labelledby": "needs-title" },
      el("h2", { id: "needs-title" }, "What this will need"), needs),
    options.label.node,
    problem,
    el("div", { class: "row" }, submit));
  fill(main, el("h1", { tabindex: "-1" }, "New job"),
    el("p", { class: "lead" }, "Match each row with a column of its own so that the total cost is the smallest."),
    form);
  waiting();

  function parts() {
    return { ...options.parts(), ...costs.chosen.editor.parts() };
  }

  /** The request as JSON text, or null while something is missing. */
  function body() {
    const given = costs.chosen.editor.document();
    if (!given) return null;
    return withMembers(typeof given === "string" ? given : JSON.stringify(given), options.document());
  }

  function waiting(text = "Give the costs, and the service says here what memory and time the job takes.") {
    fill(needs, el("p", { class: "help" }, text));
  }

  function clearMarks() {
    for (const part of Object.values(parts())) part.clearMark();
  }

  async function estimate() {
    asking?.abort();
    if (signal.aborted) return;
    const { editor } = costs.chosen;
    if (!editor.check() || !options.check()) {
      waiting("A field above needs another value first.");
      return;
    }
    if (editor.pickers().some((picker) => picker.busy)) {
      waiting("The numbers are on their way to the service; the estimate follows when they are there.");
      return;
    }
    const document = body();
    if (!document) {
      waiting();
      return;
    }
    asking = new AbortController();
    const mine = asking;
    try {
      const answer = await jobs.estimate(document, { signal: mine.signal });
      if (mine !== asking || signal.aborted) return;
      clearMarks();
      fill(problem);
      showEstimate(needs, answer);
    } catch (error) {
      if (error.name === "AbortError" || mine !== asking || signal.aborted) return;
      waiting("No estimate: the service does not accept this yet.");
      showProblem(problem, error, parts());
    }
  }

  async function send(event) {
    event.preventDefault();
    clearTimeout(timer);
    asking?.abort();
    asking = null;
    fill(problem);
    const { editor } = costs.chosen;
    if (!editor.check() || !options.check()) {
      firstWrong()?.focus();
      return;
    }
    const unusable = editor.pickers().find((picker) => picker.problem);
    if (unusable) {
      unusable.focus();
      return;
    }
    submit.disabled = true;
    say(submit, "Submitting …");
    try {
      for (const picker of editor.pickers()) await picker.settled();
      const document = body();
      if (!document) {
        incomplete(editor);
        return;
      }
      idempotency ??= crypto.getRandomValues(new Uint32Array(4)).join("-");
      const job = await jobs.submit(document, idempotency);
      for (const picker of editor.pickers()) picker.keep();
      location.hash = `#/jobs/${job.id}`;
    } catch (error) {
      clearMarks();
      showProblem(problem, error, parts())?.focus();
    } finally {
      submit.disabled = false;
      say(submit, "Submit the job");
    }
  }

  function firstWrong() {
    return Object.values(parts()).find((part) => part.node.classList.contains("invalid"));
  }

  function incomplete(editor) {
    const picker = editor.pickers().find((one) => !one.table);
    const field = Object.values(editor.parts()).find((part) => part.control && part.value() === undefined);
    const part = field && !field.node.hidden && !picker ? field : (picker ?? field);
    part?.fail(picker ? "Numbers are missing: choose a file or paste them." : "This is needed.");
    if (part && "table" in part) part.problem = null;
    part?.focus();
  }

  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    asking?.abort();
    for (const editor of costs.editors()) for (const picker of editor.pickers()) picker.close();
  });
}

/** The answer to a dry run. */
export function showEstimate(place, answer) {
  const found = answer.estimate ?? answer;
  const shape = answer.spec?.shape ?? answer.shape;
  const memory = found.memory_bytes;
  const [low, likely, high] = [found.seconds_low, found.seconds, found.seconds_high];
  const facts = [];
  if (shape) facts.push(fact("Problem", `${count(shape[0])} rows × ${count(shape[1])} columns`));
  if (shape) facts.push(fact("Pairs", count(shape[0] * shape[1])));
  facts.push(fact("Memory", memory == null ? "unknown" : `about ${bytes(memory)}`));
  facts.push(fact("Time", likely == null ? "unknown" : `about ${duration(likely)}`.replace("about less", "less")));
  if (low != null && high != null) facts.push(fact("Could be", `${duration(low)} to ${duration(high)}`));
  if (found.threads) facts.push(fact("Threads", count(found.threads)));
  if (found.spread) {
    facts.push(fact("Workers", count(found.spread.workers)));
    facts.push(fact("With one worker", `about ${duration(found.spread.seconds_alone)}`.replace("about less", "less")));
  }
  const notes = (found.notes ?? []).map((note) => el("p", { class: "help" }, asSentence(note)));
  fill(place, el("dl", { class: "facts" }, facts), notes);
}
