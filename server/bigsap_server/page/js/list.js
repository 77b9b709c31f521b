/** The list of jobs: newest first, a page at a time, by state and label. */

import { jobs } from "./api.js";
import { el, fill, say } from "./dom.js";
import { Field } from "./fields.js";
import { inWords, showProblem } from "./problems.js";
import { count, isActive, moment, percent, rough, standing, STATES, stateWords } from "./words.js";

const PAGE = 50;
const SOON = 2000; // ms until the page is looked at again, while a job on it moves
const LATER = 6000;

/** A state as text with a mark, never by colour alone. */
export function badge(state) {
  return el("span", { class: `badge ${state}` }, stateWords(state));
}

/** Part of the rows assigned in the current phase, later of the assignments ranked; null when it is not known. */
export function partDone(job) {
  const { assigned, rows, columns, ranked, to_rank: asked } = job.progress ?? {};
  if (asked) return ranked / asked;
  const all = rows ? Math.min(rows, columns) : job.shape && Math.min(...job.shape);
  return all && assigned != null ? Math.min(1, assigned / all) : null;
}

/** How far it is or what came out, in a few words; empty where there is nothing to say. */
function outcome(job) {
  if (job.outcome?.objective != null) return `cost ${rough(job.outcome.objective)}`;
  if (job.outcome) return job.outcome.status.replaceAll("_", " ");
  if (isActive(job) && job.state !== "queued") {
    const part = partDone(job);
    return part === null ? "" : `${percent(part)} ${job.progress.to_rank ? "ranked" : "assigned"}`;
  }
  return job.problem?.title ?? "";
}

function line(job) {
  const size = job.shape ? `${count(job.shape[0])} × ${count(job.shape[1])}` : "";
  return el("tr", {},
    el("th", { scope: "row" }, el("a", { href: `#/jobs/${job.id}` }, job.label || job.id),
      job.label && el("span", { class: "sub" }, job.id)),
    el("td", { "data-name": "State" }, badge(standing(job))),
    el("td", { "data-name": "Size", class: "number" }, size),
    el("td", { "data-name": "Created" }, el("time", { datetime: job.created }, moment(job.created))),
    el("td", { "data-name": "So far" }, outcome(job) || null));
}

/** Shows the page in `main` until `signal` aborts. */
export async function showJobs(main, { signal }) {
  const tokens = [null]; // of the pages up to this one
  let next = null;
  let moving = false;
  let timer = 0;
  let round = 0;
  let typing = 0;

  const again = () => {
    tokens.length = 1;
    load();
  };
  const state = new Field({
    label: "State", kind: "select", onChange: again,
    choices: [["", "all states"], ...STATES.map((one) => [one, stateWords(one)])],
  });
  const label = new Field({
    label: "Label", placeholder: "whole label", onChange: () => {
      clearTimeout(typing);
      typing = setTimeout(again, 300);
    },
  });
  const status = el("p", { class: "help", role: "status", id: "list-status" });
  const problem = el("div", { role: "alert" });
  const body = el("tbody");
  const table = el("table", { class: "jobs" },
    el("caption", { class: "away" }, "Jobs, newest first"),
    el("thead", {}, el("tr", {}, ["Job", "State", "Size", "Created", "So far"].map((text) =>
      el("th", { scope: "col" }, text)))),
    body);
  const newer = el("button", { type: "button", onclick: () => turn(-1) }, "← Newer");
  const older = el("button", { type: "button", onclick: () => turn(1) }, "Older →");
  fill(main, el("h1", { tabindex: "-1" }, "Jobs"),
    el("div", { class: "filters", role: "search", "aria-label": "Filter jobs" }, state.node, label.node),
    problem, el("div", { class: "card flush" }, table),
    el("nav", { class: "row", "aria-label": "Pages of the list" }, newer, older, status));

  function turn(by) {
    if (by > 0 && next) tokens.push(next);
    else if (by < 0 && tokens.length > 1) tokens.pop();
    load({ turned: true });
  }

  function query() {
    const asked = new URLSearchParams({ page_size: PAGE });
    if (state.control.value) asked.set("state", state.control.value);
    if (label.value()) asked.set("label", label.value());
    if (tokens.at(-1)) asked.set("page_token", tokens.at(-1));
    return asked;
  }

  async function load({ turned = false, quiet = false } = {}) {
    clearTimeout(timer);
    round += 1;
    const mine = round;
    try {
      const page = await jobs.page(query(), { signal });
      if (mine !== round) return;
      show(page, quiet);
      if (turned) main.querySelector("h1").scrollIntoView();
    } catch (error) {
      if (error.name === "AbortError" || mine !== round) return;
      if (quiet) say(status, inWords(error));
      else showProblem(problem, error);
    }
    if (!signal.aborted && mine === round) later();
  }

  /** Looks again after a while; not while nobody can see it. */
  function later() {
    timer = setTimeout(() => (document.hidden ? later() : load({ quiet: true })), moving ? SOON : LATER);
  }

  function show(page, quiet) {
    fill(problem);
    next = page.next_page_token ?? null;
    moving = page.jobs.some(isActive);
    const held = quiet && body.contains(document.activeElement) ? document.activeElement.hash : null;
    fill(body, page.jobs.map(line), page.jobs.length === 0 && el("tr", {},
      el("td", { colspan: 5, class: "empty" }, tokens.length > 1 ? "No more jobs." : "No jobs here. ",
        tokens.length === 1 && el("a", { href: "#/new" }, "Submit one"))));
    if (held) [...body.querySelectorAll("a")].find((link) => link.hash === held)?.focus();
    // Not disabled outright: the focus would be lost with the button's.
    newer.setAttribute("aria-disabled", String(tokens.length === 1));
    older.setAttribute("aria-disabled", String(!next));
    const start = (tokens.length - 1) * PAGE;
    say(status, page.jobs.length ? `Jobs ${count(start + 1)} to ${count(start + page.jobs.length)}` : "No jobs");
  }

  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    clearTimeout(typing);
  });
  await load();
}
