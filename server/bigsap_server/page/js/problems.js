/** Refusals of the service as sentences, beside the fields that they are about. */

import { ApiError } from "./api.js";
import { el, fill } from "./dom.js";
import { asSentence } from "./words.js";

/** [{pointer, text}] of a problem document, however many fields it blames. */
function blamed(problem) {
  const listed = Array.isArray(problem.errors) ? problem.errors : [];
  const found = listed.map((one) => ({ pointer: one.pointer, text: one.detail ?? one.message }));
  if (problem.pointer !== undefined && !found.some(({ pointer }) => pointer === problem.pointer)) {
    found.unshift({ pointer: problem.pointer, text: problem.detail ?? problem.title });
  }
  return found.filter(({ text }) => text);
}

/** The field that stands for the pointer or for what contains it. */
function partFor(pointer, parts) {
  let path = String(pointer ?? "").replace(/^#/, "");
  for (;;) {
    if (parts[path]) return parts[path];
    if (path === "") return null;
    path = path.slice(0, path.lastIndexOf("/"));
  }
}

/** What an error says, as one sentence or two. */
export function inWords(error) {
  if (!(error instanceof ApiError)) return asSentence(error.message);
  const { title, detail } = error.problem;
  if (error.status === 429) return asSentence(detail ?? "Too many requests; try again in a moment");
  return asSentence(detail ?? title ?? error.message);
}

/**
 * Shows `error` in `place` (which should be a live region) and marks the fields in `parts`
 * (pointer -> field or picker) that it blames. Returns the first marked field, if any.
 */
export function showProblem(place, error, parts = {}) {
  const items = error instanceof ApiError ? blamed(error.problem) : [];
  let first = null;
  const lines = items.map(({ pointer, text }) => {
    const part = partFor(pointer, parts);
    if (part) {
      part.fail(asSentence(text));
      // The service has said it, not the reader of the file: it must not block the next try.
      if ("table" in part) part.problem = null;
      first ??= part;
    }
    const go = part && el("button", { type: "button", class: "link", onclick: () => part.focus() }, "Go to the field");
    const where = pointer ? [" ", el("code", {}, pointer)] : [];
    return el("li", {}, asSentence(text), where, go && [" ", go]);
  });
  const head = items.length && error.problem.title ? asSentence(error.problem.title) : inWords(error);
  fill(place, el("div", { class: "notice bad" }, el("p", {}, head), lines.length > 0 && el("ul", {}, lines)));
  return first;
}
