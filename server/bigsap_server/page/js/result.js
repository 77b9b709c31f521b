/** What a finished job found: in words, in figures, as files, and for points in the plane as a picture. */

import { jobs } from "./api.js";
import { el, fact, fill, saveAs, say } from "./dom.js";
import { picture } from "./matching.js";
import { inWords, showProblem } from "./problems.js";
import { asSentence, bytes, count, distance, duration, limit, number, plural } from "./words.js";

const FILES = {
  col4row: "the column of each row",
  row4col: "the row of each column",
  u: "the dual of each row",
  v: "the dual of each column",
  u_low: "what the dual of each row is beyond u",
  v_low: "what the dual of each column is beyond v",
  k_costs: "the cost of each ranked assignment",
  k_col4row: "of each ranked assignment the column of each row",
};
const FIRST = 10; // pairs in the table

/** Fills `place` with the result of `job`, or with why there is none. */
export async function showResult(place, job, { signal }) {
  let summary;
  try {
    summary = await jobs.result(job.id);
  } catch (error) {
    if (error.name === "AbortError") return;
    place.hidden = false;
    showProblem(place, error);
    return;
  }
  if (signal.aborted) return;
  const problem = el("div", { role: "alert" });
  const look = el("div");
  const stats = summary.stats ?? {};
  fill(place,
    el("h2", { id: "result-title" }, "Result"),
    el("div", { class: `verdict${summary.status === "imprecise" ? " notice warn" : ""}`, role: "status", id: "verdict" }, verdict(summary, job).map((text) => el("p", {}, text))),
    el("dl", { class: "facts" },
      fact("Cost", number(summary.objective)),
      fact("Bound", boundOf(summary)),
      fact("Gap", distance(summary.gap)),
      fact("Certificate", certificateWord(summary)),
      stats.method && fact("Method", stats.method),
      stats.rows_evaluated != null && fact("Rows evaluated", count(stats.rows_evaluated)),
      stats.rows_scanned != null && fact("Rows scanned", count(stats.rows_scanned)),
      stats.peak_bytes != null && fact("Peak memory", bytes(stats.peak_bytes)),
      total(stats.seconds) != null && fact("Time", duration(total(stats.seconds)))));
  if (summary.k_best?.count) place.append(ranking(summary.k_best));
  if (hasAssignment(summary)) place.append(el("h3", {}, "Downloads"), downloads(job, summary, problem), problem, look);
  place.hidden = false;
  if (hasAssignment(summary)) await showPairs(look, job, summary, signal);
}

const total = (seconds) => (seconds && typeof seconds === "object"
  ? (seconds.total ?? Object.values(seconds).reduce((sum, one) => sum + one, 0))
  : seconds);

const hasAssignment = (summary) => summary.objective != null;

function certificateWord({ certificate, status }) {
  if (!certificate?.certified) return "none";
  return status === "optimal" ? "proof of optimality" : "proof of the bound";
}

/** The bound as text. Of huge costs only the gap says whether it is the cost, which JSON.parse rounds. */
const boundOf = ({ bound, gap, objective, maximize }) =>
  (gap === 0 ? number(bound) : limit(bound, maximize ?? false, objective));

/** The outcome in sentences. */
export function verdict(summary, job) {
  const { status, objective, bound, gap, certificate, message } = summary;
  const largest = summary.maximize ?? false;
  const [better, best] = largest ? ["higher", "largest"] : ["lower", "smallest"];
  const ruledOut = boundOf(summary);
  const said = [];
  if (status === "infeasible") {
    said.push("There is no complete assignment: too many pairs are forbidden.");
    if (message) said.push(asSentence(message));
    return said;
  }
  if (objective == null) {
    const why = { time_limit: "The time limit came first", cancelled: "The job was stopped" }[status];
    said.push(`${why ?? "The job ended"}: no complete assignment was found yet.`);
    if (bound != null) said.push(`It is proved that no assignment has a ${better} cost than ${ruledOut}.`);
    return said;
  }
  said.push(`The assignment costs ${number(objective)}.`);
  const worst = summary.stats?.bottleneck;
  const [among, none] = worst == null ? ["", "no assignment"] : [" among those", "none of them"];
  if (worst != null) {
    const [which, beyond] = largest ? ["smallest", "larger"] : ["largest", "smaller"];
    said.push(`Its ${which} cost of a pair is ${number(worst)}, and no assignment has a ${beyond} one.`);
  }
  if (status === "optimal") {
    said.push(`This is the ${best} cost possible${among}: the duals prove that ${none} has a ${better} one.`);
  } else if (status === "imprecise") {
    said.push(`That this is the ${best} cost possible${among} is proved only to within ${distance(gap)}: ` +
      `${none} has a ${better} cost than ${ruledOut}.`);
  } else {
    const why = {
      gap_reached: "The job stopped at the gap that was asked for",
      time_limit: "The job stopped at its time limit",
      cancelled: "The job was stopped",
    }[status] ?? "The job ended";
    said.push(bound == null ? `${why}: how far this one is from the best is not known.`
      : `${why}: ${none} has a ${better} cost than ${ruledOut}, so this one is within ${distance(gap)} of the best.`);
  }
  const [rows, columns] = summary.shape ?? job.shape ?? [];
  const left = Math.min(rows, columns) - summary.n_assigned;
  if (left > 0) said.push(`${count(summary.n_assigned)} of ${plural(rows, "row")} are matched, the others are left out.`);
  if (job.k_best != null && summary.k_best == null) said.push("The job was stopped before its assignments were ranked.");
  if (wasStopped(summary.k_best)) said.push("Its ranking was stopped: the assignments ranked by then are the best, in order.");
  if (certificate?.certified) {
    const all = certificate.pairs ? `all ${count(certificate.pairs)} pairs` : "every pair";
    const how = certificate.by === "bounds"
      ? `bounds of the costs and ${count(certificate.pairs)} pairs that they left`
      : `one more pass over ${all}`;
    said.push(`The certificate comes from ${how}, by code of its own that shares nothing with the search.`);
  } else said.push("There is no certificate.");
  return said;
}

const wasStopped = (ranked) => ["time_limit", "cancelled"].includes(ranked?.status);

/** The first costs of a ranking. */
function ranking(ranked) {
  const { count: found, complete, costs } = ranked;
  const stopped = wasStopped(ranked) ? ", then stopped" : "";
  const all = complete ? ", all there are" : stopped;
  return el("details", { id: "ranking" },
    el("summary", {}, `Ranked: ${plural(found, "assignment")}${all}`),
    el("ol", {}, costs.map((cost) => el("li", {}, number(cost)))),
    found > costs.length && el("p", { class: "help" }, "The others are in the files below."));
}

/** Buttons, not links: the request needs the key and the wanted type. */
function downloads(job, { links }, problem) {
  const status = el("p", { class: "help", role: "status" });
  const fetchFile = async (name, accept, ending, fetched = jobs.array) => {
    fill(problem);
    say(status, `Fetching ${name}.${ending} …`);
    try {
      const blob = await (await fetched(job.id, name, accept)).blob();
      saveAs(blob, `${job.id}-${name}.${ending}`);
      say(status, `${name}.${ending} is saved (${bytes(blob.size)}).`);
    } catch (error) {
      say(status, "");
      showProblem(problem, error);
    }
  };
  const lines = Object.entries(FILES).filter(([name]) => links[name]).map(([name, what]) => el("li", { class: "row" },
    el("span", {}, el("code", {}, name), ` ${what}`),
    el("button", { type: "button", onclick: () => fetchFile(name, "application/x-npy", "npy"),
      "aria-label": `Download ${name} as npy` }, "npy"),
    el("button", { type: "button", onclick: () => fetchFile(name, "text/csv", "csv"),
      "aria-label": `Download ${name} as CSV` }, "CSV")));
  lines.push(el("li", { class: "row" },
    el("span", {}, el("code", {}, "result"), " all of it, as BigSAP's Python and command line read it"),
    el("button", { type: "button", onclick: () => fetchFile("result", "application/x-npz", "npz", jobs.whole),
      "aria-label": "Download the whole result as npz" }, "npz")));
  return el("div", {}, el("ul", { class: "downloads" }, lines), status);
}

async function showPairs(look, job, { links }, signal) {
  if (!links.col4row) return; // rows take several columns
  const cannot = (error) => {
    if (error.name === "AbortError" || signal.aborted) return;
    look.append(el("p", { class: "help" }, `The matching cannot be shown: ${inWords(error)}`));
  };
  try {
    const drawn = links.picture ? await jobs.picture(job.id, { signal }) : null;
    if (signal.aborted) return;
    if (drawn) look.append(el("h3", {}, "Picture"), picture(drawn, signal));
  } catch (error) {
    cannot(error);
  }
  try {
    const answer = await jobs.array(job.id, `col4row?limit=${FIRST}`, "application/json", { signal });
    const { values, total } = await answer.json();
    if (!signal.aborted) look.append(table(values, total));
  } catch (error) {
    cannot(error);
  }
}

function table(col4row, rows) {
  return el("details", {}, el("summary", {}, `The first pairs (${plural(Math.min(rows, FIRST), "row")})`),
    el("table", { class: "pairs" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "row"), el("th", { scope: "col" }, "column"))),
      el("tbody", {}, col4row.map((column, row) => el("tr", {}, el("th", { scope: "row" }, count(row)),
        el("td", {}, column < 0 ? "none" : count(column)))))));
}
