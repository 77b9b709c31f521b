/** A job's page: what it is, how far it is, its curves and log, and in the end its result. */

import { jobs } from "./api.js";
import { Curves, gapOf } from "./charts.js";
import { confirmed } from "./dialogs.js";
import { el, fact, fill, say } from "./dom.js";
import { badge, partDone } from "./list.js";
import { inWords, showProblem } from "./problems.js";
import { showResult } from "./result.js";
import { follow } from "./stream.js";
import { count, distance, duration, isActive, limit, moment, percent, plural, rough, standing, stateWords } from "./words.js";

const LINES = 500;
const KINDS = {
  points: "two point sets", array: "a matrix", expression: "an expression", lowrank: "low rank",
  table: "a table of classes", sparse: "listed pairs", zarr: "a zarr store", npy: "a .npy file",
  http_rows: "a row provider", plugin: "a plugin",
  sum: "a sum of costs", scale: "a scaled cost", mask: "a masked cost", forbid_above: "a gated cost",
};

const seconds = (iso) => Date.parse(iso) / 1000;

/** Shows the job's page in `main` until `signal` aborts. */
export async function showJob(main, { id, signal }) {
  const opened = new Date();
  let job;
  try {
    job = await jobs.get(id, { signal });
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(main, el("h1", { tabindex: "-1" }, "Job"), el("div", { role: "alert", id: "job-problem" }));
    showProblem(main.querySelector("#job-problem"), error);
    main.append(el("p", {}, el("a", { href: "#/jobs" }, "To the list of jobs")));
    return;
  }

  const title = el("h1", { tabindex: "-1" });
  const state = el("div", { class: "state", role: "status", id: "job-state" });
  const about = el("dl", { class: "facts" });
  const actions = el("div", { class: "row", role: "group", "aria-label": "What to do with this job" });
  const problem = el("div", { role: "alert" });
  const reason = el("div", { id: "job-reason" });
  const result = el("section", { class: "card", id: "result", "aria-labelledby": "result-title", hidden: true });
  const live = liveView();
  const log = el("div", { class: "log", role: "log", "aria-label": "Log of this job", tabindex: "0", id: "job-log" });
  fill(main,
    el("p", { class: "crumbs" }, el("a", { href: "#/jobs" }, "Jobs")), title, state, problem, reason, actions,
    result, live.node,
    el("details", { class: "card", open: true }, el("summary", {}, el("h2", {}, "Log")), log),
    el("details", { class: "card" }, el("summary", {}, el("h2", {}, "About this job")), about));

  const buttons = {
    finish: action("Stop and keep what is known", "graceful"),
    now: action("Stop now", "now"),
    resume: el("button", { type: "button", onclick: () => act(() => jobs.resume(id), follows) }, "Resume"),
    remove: el("button", { type: "button", class: "danger", onclick: remove }, "Delete"),
  };
  fill(actions, Object.values(buttons));
  const seen = { last: null, start: null, phase: null, resultOf: null, following: false, timer: 0 };
  show();
  follows();

  function action(text, mode) {
    return el("button", { type: "button", onclick: () => act(() => jobs.cancel(id, mode)) }, text);
  }

  async function act(call, then) {
    fill(problem);
    try {
      const answer = await call();
      if (answer?.state) job = answer;
      await reload();
      then?.();
    } catch (error) {
      showProblem(problem, error);
    }
  }

  async function remove() {
    const sure = await confirmed({
      title: "Delete this job?", text: "Its record and all its files are removed for good.", yes: "Delete it",
    });
    if (!sure) return;
    try {
      await jobs.remove(id);
      location.hash = "#/jobs";
    } catch (error) {
      showProblem(problem, error);
    }
  }

  async function reload() {
    job = await jobs.get(id, { signal });
    show();
  }

  // The history of a job names many states at once.
  function reloadSoon() {
    clearTimeout(seen.timer);
    seen.timer = setTimeout(() => {
      reload().catch((error) => error.name !== "AbortError" && showProblem(problem, error));
    }, 50);
  }

  function show() {
    const name = job.label || job.id;
    say(title, name);
    document.title = `${stateWords(standing(job))}: ${name} – BigSAP`;
    if (state.dataset.state !== `${standing(job)} ${job.attempt}`) {
      state.dataset.state = `${standing(job)} ${job.attempt}`;
      const attempt = job.attempt > 1 ? ` (attempt ${job.attempt})` : "";
      fill(state, badge(standing(job)), attempt);
    }
    const active = isActive(job);
    const stopping = job.state === "cancelling";
    visible(buttons.finish, active && !stopping);
    visible(buttons.now, active);
    visible(buttons.resume, job.links.resume != null);
    visible(buttons.remove, !active);
    fill(about,
      fact("Id", el("code", {}, job.id)),
      job.shape && fact("Size", `${count(job.shape[0])} × ${count(job.shape[1])}`),
      fact("Costs", KINDS[job.cost] ?? job.cost),
      job.spread && fact("Spread over", job.spread === true ? "all idle workers" : `at most ${count(job.spread)} workers`),
      fact("Created", moment(job.created)),
      job.started && fact("Started", moment(job.started)),
      job.finished && fact("Finished", moment(job.finished)),
      fact("Attempt", count(job.attempt)));
    if (job.problem && ["failed", "interrupted", "cancelled"].includes(job.state)) {
      const text = [job.problem.title, job.problem.detail].filter(Boolean).join(": ");
      fill(reason, el("p", { class: `notice ${job.state === "failed" ? "bad" : "warn"}` }, text));
    } else fill(reason);
    if (job.progress) live.progress(job, job.progress);
    live.state(job);
    showWhenDone();
  }

  /** Hides a button without losing the keyboard's place. */
  function visible(button, wanted) {
    if (!wanted && button === document.activeElement) title.focus();
    button.hidden = !wanted;
  }

  function showWhenDone() {
    const key = `${job.state} ${job.attempt}`;
    if (isActive(job) || !job.outcome) {
      result.hidden = true;
      seen.resultOf = null;
    } else if (seen.resultOf !== key) {
      seen.resultOf = key;
      showResult(result, job, { signal });
    }
  }

  function write(time, text) {
    const at = new Date(seconds(time) * 1000);
    // Followed only while the reader is at the end.
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    // What happened before the visit is there to be read, not to be announced.
    log.setAttribute("aria-live", at < opened ? "off" : "polite");
    log.append(el("p", {}, el("time", { datetime: at.toISOString() }, at.toLocaleTimeString()), " ", text));
    while (log.childElementCount > LINES) log.firstChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  function take({ id: sequence, data }) {
    const { kind, time, data: facts } = JSON.parse(data);
    if (sequence === undefined) return; // the end: the stream closes next
    // For whoever wants to check that none is missing.
    live.node.dataset.seen = `${live.node.dataset.seen ?? ""} ${sequence}`.slice(-4000);
    seen.start ??= seconds(time);
    if (kind === "progress") {
      const known = Object.entries(facts).filter(([, value]) => value !== undefined);
      job.progress = { ...job.progress, ...Object.fromEntries(known) };
      live.point(seconds(time) - seen.start, facts);
      if (isActive(job)) live.progress(job, job.progress);
      if (facts.phase != null && facts.phase !== seen.phase) {
        seen.phase = facts.phase;
        write(time, facts.phase === 0 ? "First prices" : `Phase ${facts.phase}, epsilon ${rough(facts.epsilon)}`);
      }
    } else if (kind === "state") {
      const why = facts.problem?.detail;
      write(time, `The job is ${stateWords(facts.state)}${why ? `: ${why}` : ""}`);
      if (facts.state !== job.state) reloadSoon();
    } else if (kind === "log") write(time, facts.message ?? JSON.stringify(facts));
  }

  async function follows() {
    if (seen.following) return;
    seen.following = true;
    try {
      seen.last = await follow(jobs.events(id), {
        signal,
        last: seen.last,
        onEvent: take,
        onStatus(status, milliseconds) {
          live.connection(status, milliseconds);
        },
        async onEnd() {
          await reload();
          if (isActive(job)) return false;
          live.connection("ended");
          return true;
        },
      });
    } catch (error) {
      if (error.name !== "AbortError") {
        live.connection("lost", 0, inWords(error));
      }
    } finally {
      seen.following = false;
    }
  }

  signal.addEventListener("abort", () => {
    clearTimeout(seen.timer);
    live.close();
  });
}

/** How many rows each worker of a spread job has evaluated, the busiest first. */
function byWorker(workers) {
  const rows = Object.values(workers).sort((a, b) => b - a);
  return rows.map((one) => count(one)).join(" + ");
}

/** The part that moves: bar, figures, curves. */
function liveView() {
  const bar = el("progress", { max: 1, "aria-labelledby": "bar-text", id: "job-bar" });
  const text = el("p", { id: "bar-text" });
  const facts = el("dl", { class: "facts", id: "job-facts" });
  const connection = el("p", { class: "help", role: "status", id: "job-connection" });
  const curves = new Curves();
  const bars = el("div", {}, bar, text);
  const node = el("section", { class: "card", id: "live", "aria-labelledby": "live-title" },
    el("h2", { id: "live-title" }, "Progress"), bars, facts, connection, curves.node);

  function figures(job, progress) {
    // Of a job that is over, the result knows better.
    const active = isActive(job);
    const gap = active ? gapOf(progress) : null;
    fill(facts,
      active && fact("Assigned", count(progress.assigned)),
      active && progress.phase > 0 && fact("Epsilon", rough(progress.epsilon)),
      fact("Rows evaluated", count(progress.rows_evaluated)),
      fact("Rows scanned", count(progress.rows_scanned)),
      progress.workers && fact("Rows by worker", byWorker(progress.workers)),
      progress.cache_hit != null && fact("Cache hit rate", percent(progress.cache_hit)),
      active && progress.lower_bound != null && fact("Lower bound", limit(progress.lower_bound, false)),
      active && progress.upper_bound != null && fact("Upper bound", limit(progress.upper_bound, true)),
      gap != null && fact("Gap", distance(gap)),
      active && progress.eta_s != null && fact("Time left", duration(progress.eta_s)),
      progress.seconds != null && fact("Time so far", duration(progress.seconds)));
  }

  return {
    node,
    close: () => curves.close(),
    point: (time, progress) => curves.add(time, progress),

    state(job) {
      bars.hidden = !isActive(job);
      if (job.state === "queued") {
        bar.removeAttribute("value");
        say(text, "Waiting for a free worker.");
      }
    },

    progress(job, progress) {
      const part = partDone(job);
      if (part === null) bar.removeAttribute("value");
      else bar.value = part;
      if (progress.stage === "certificate") {
        bar.removeAttribute("value");
        say(text, "Making the certificate.");
        return figures(job, progress);
      }
      if (progress.to_rank) {
        say(text, `${count(progress.ranked)} of ${plural(progress.to_rank, "assignment")} ranked.`);
        return figures(job, progress);
      }
      const phase = progress.phase ? ` in phase ${progress.phase}` : "";
      const rest = progress.eta_s == null ? "" : `, about ${duration(progress.eta_s)} left`.replace("about less", "less");
      const words = { loading: "Opening the costs …", start: "Finding first prices …", levels: "Finding first prices on samples of the problem …" }[progress.stage];
      say(text, part === null || !progress.phase ? (words ?? "Starting …")
        : `${percent(part)} of the rows assigned${phase}${rest}.`);
      return figures(job, progress);
    },

    connection(status, milliseconds, why) {
      node.dataset.connection = status;
      if (status === "waiting") {
        say(connection, `The connection is lost; trying again in ${duration(Math.max(1, milliseconds / 1000))}.`);
      } else if (status === "lost") say(connection, `No live updates: ${why}`);
      else if (status === "connected") say(connection, "Live.");
      else say(connection, "");
    },
  };
}
