/** Starts the page: which part is shown, theme, key, connection. */

import { capabilities, onKeyNeeded } from "./api.js";
import { askForKey, prepareDialogs } from "./dialogs.js";
import { say } from "./dom.js";
import { showJob } from "./job.js";
import { showJobs } from "./list.js";
import { showNewJob } from "./newjob.js";
import { showProblem } from "./problems.js";

const main = document.getElementById("main");
const TITLES = { new: "New job – BigSAP", jobs: "Jobs – BigSAP", job: "Job – BigSAP" };
let current = null;

function route() {
  const [, page = "new", id] = location.hash.split("/");
  if (page === "jobs" && id) return { page: "job", show: showJob, id: decodeURIComponent(id) };
  if (page === "jobs") return { page: "jobs", show: showJobs };
  return { page: "new", show: showNewJob };
}

async function open({ focus = true } = {}) {
  current?.abort();
  current = new AbortController();
  const { signal } = current;
  const { page, show, id } = route();
  document.title = TITLES[page];
  for (const link of document.querySelectorAll("nav [data-page]")) {
    const here = link.dataset.page === page || (page === "job" && link.dataset.page === "jobs");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  try {
    await show(main, { id, signal });
  } catch (error) {
    if (!signal.aborted) showProblem(main, error);
  }
  if (signal.aborted) return;
  main.removeAttribute("aria-busy");
  main.dataset.page = page;
  // So that the keyboard and a screen reader begin where the new page does.
  if (focus) main.querySelector("h1")?.focus();
}

const THEMES = ["system", "light", "dark"];

/** theme.js sets the colours; here they are chosen. */
function prepareTheme() {
  const chosen = () => localStorage.getItem("bigsap-theme") ?? "system";
  const show = () => {
    say(document.getElementById("theme-name"), `Theme: ${chosen()}`);
    document.dispatchEvent(new Event("bigsap-theme"));
  };
  document.getElementById("theme-button").addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(chosen()) + 1) % THEMES.length];
    if (next === "system") localStorage.removeItem("bigsap-theme");
    else localStorage.setItem("bigsap-theme", next);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  window.addEventListener("storage", show); // chosen in another tab
  show();
}

function prepareConnection() {
  const box = document.getElementById("connection");
  const show = () => {
    box.hidden = navigator.onLine;
    say(box, navigator.onLine ? "" : "You are offline. This page goes on when the connection is back.");
  };
  window.addEventListener("online", show);
  window.addEventListener("offline", show);
  show();
}

async function sayAbout() {
  const known = await capabilities().catch(() => null);
  document.getElementById("key-button").hidden = known?.auth === false;
  const version = known?.versions.bigsap;
  if (version) {
    const text = `BigSAP ${version}: exact linear assignment with a proof of optimality.`;
    say(document.getElementById("about"), text);
  }
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the router's
  main.focus();
});
onKeyNeeded(askForKey);
prepareDialogs(() => open());
prepareTheme();
prepareConnection();
window.addEventListener("hashchange", () => open());
open({ focus: false }).then(sayAbout);
