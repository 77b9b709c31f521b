/** Numbers, times and states as people say them. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const STATES = [
  "queued", "starting", "running", "cancelling", "succeeded", "failed", "cancelled", "interrupted",
];

const STATE_WORDS = {
  queued: "waiting",
  starting: "starting",
  running: "running",
  cancelling: "stopping",
  succeeded: "finished",
  failed: "failed",
  cancelled: "cancelled",
  interrupted: "interrupted",
  imprecise: "imprecise",
};

/** What a job's badge says: its state, and of what ended without its proof the result's status. */
export const standing = (job) => (job.state === "succeeded" && job.outcome?.status === "imprecise" ? "imprecise" : job.state);

/** Whether something more happens to the job by itself: also to an interrupted one that is tried again. */
export const isActive = (job) => job.links.cancel !== undefined;
export const stateWords = (state) => STATE_WORDS[state] ?? state;

/** An integer with separators. */
export const count = (value) => (value == null ? "–" : whole.format(value));

/** An integer for an axis: 1.2M. */
export const brief = (value) => (value == null ? "" : short.format(value));

/** A cost: all digits that matter, no others. */
export function number(value) {
  if (value == null || value === "") return "–";
  if (typeof value === "string") return value; // "inf", "-inf", "nan"
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return whole.format(value);
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e9) return String(Number(value.toPrecision(10)));
  return value.toExponential(6);
}

/** A number to so many digits, no less than it (above) or no more. */
function outward(given, digits, above) {
  // JSON.parse may have rounded an integer of this size.
  const margin = Number.isInteger(given) && !Number.isSafeInteger(given) ? Math.abs(given) * 2 ** -52 : 0;
  const value = above ? given + margin : given - margin;
  const falls = (shown) => (above ? shown < value : shown > value);
  const exponent = Math.floor(Math.log10(Math.abs(value)));
  let shown = Number(value.toPrecision(digits));
  for (let unit = 10 ** (exponent - digits + 1); falls(shown) && unit > 0; unit *= 10) {
    shown = Number((shown + (above ? unit : -unit)).toPrecision(digits));
  }
  return shown;
}

/** A proved bound: what is shown is one, too, unless it is the cost itself. */
export function limit(value, above, cost = null) {
  if (value == null || typeof value === "string" || !Number.isFinite(value)) return number(value);
  const whole = Number.isInteger(value);
  if (whole ? Math.abs(value) < 1e15 : value === cost) return number(value);
  const size = Math.abs(value);
  return number(outward(value, size >= 1e-3 && size < 1e9 ? 10 : 7, above));
}

/** How far a cost may be from the best: to three digits, rounded up. */
export function distance(value) {
  if (value == null || typeof value === "string" || value === 0 || !Number.isFinite(value)) return rough(value);
  return rough(outward(value, 3, true));
}

/** A small quantity to three digits: epsilon. */
export function rough(value) {
  if (value == null) return "–";
  if (value === 0 || typeof value === "string") return String(value);
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e6 ? String(Number(value.toPrecision(3))) : value.toExponential(2);
}

/** Rounded down: 8,998 of 9,000 are not yet all. */
export const percent = (value) => (value == null ? "–" : `${(Math.floor(1000 * value + 1e-9) / 10).toFixed(1)} %`);

export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size >= 100 || unit === 0 ? Math.round(size) : size.toFixed(1)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return "less than a second";
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 119.5) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86_400).toFixed(1)} days`;
}

/** A point in time, in the reader's own zone. */
export function moment(iso) {
  if (!iso) return "–";
  const date = new Date(iso);
  const today = date.toDateString() === new Date().toDateString();
  return today
    ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" })
    : date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

/** `one row`, `2 rows`. */
export const plural = (n, word) => `${n === 1 ? "one" : count(n)} ${word}${n === 1 ? "" : "s"}`;

/** With a capital letter and an end. */
export function asSentence(text) {
  const trimmed = String(text).trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}
