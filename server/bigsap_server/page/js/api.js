/** Talking to the service: one place for the key, problem documents and downloads. */

const ROOT = new URL("v1/", document.baseURI);
const KEY = "bigsap-key";

/** What the service refused, with its problem document (RFC 9457). */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `The service answered ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

/** The service could not be reached at all. */
export class Unreachable extends Error {}

let askForKey = null;
let asking = null;

/** Registers what asks the user for a key: `(reason) => Promise<string | null>`. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

// For this tab only: a key must not outlive the visit on a shared machine.
export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** Whether a header can carry the key: it has characters of Latin-1 only. */
export function canBeSent(given) {
  try {
    return withKey({}, given).has("Authorization");
  } catch {
    return false;
  }
}

export const url = (path) => new URL(path, ROOT);

function withKey(headers, given) {
  const found = new Headers(headers);
  if (given) found.set("Authorization", `Bearer ${given}`);
  return found;
}

async function problemOf(response) {
  try {
    const body = await response.json();
    if (body && typeof body === "object") return body;
  } catch {
    // Not every proxy on the way speaks JSON.
  }
  return { title: `The service answered ${response.status} ${response.statusText}.` };
}

/** One question at a time, whoever needs the answer; false when the user gave none. */
async function newKey(reason, refused) {
  if (key.get() !== refused) return true; // another call has already got a new one
  asking ??= askForKey(reason).finally(() => {
    asking = null;
  });
  const answer = await asking;
  if (answer) key.set(answer);
  return Boolean(answer);
}

/**
 * `fetch` on a path below /v1/. Raises ApiError for refusals and Unreachable when there is no
 * answer; asks for the key on 401 and tries again.
 */
export async function request(path, { headers = {}, ...options } = {}) {
  for (;;) {
    const used = key.get();
    let response;
    try {
      response = await fetch(url(path), { ...options, headers: withKey(headers, used), cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Unreachable("The service does not answer. Is it running, and are you connected?");
    }
    if (response.ok || response.status === 304) return response;
    const problem = await problemOf(response);
    if (response.status === 401 && askForKey && (await newKey(problem.detail ?? "", used))) continue;
    throw new ApiError(response.status, problem);
  }
}

export async function getJson(path, options) {
  return (await request(path, options)).json();
}

/** Sends `body`, JSON if it is text, as JSON and returns the JSON answer, or null for an empty one. */
export async function sendJson(method, path, body, options = {}) {
  const response = await request(path, {
    method,
    body: typeof body === "string" || body === undefined ? body : JSON.stringify(body),
    ...options,
    headers: { "Content-Type": "application/json", ...options.headers },
  });
  return response.status === 204 ? null : response.json();
}

const jobPath = (id) => `jobs/${encodeURIComponent(id)}`;

export const jobs = {
  page: (query, options) => getJson(`jobs?${query}`, options),
  get: (id, options) => getJson(jobPath(id), options),
  submit: (body, idempotencyKey) =>
    sendJson("POST", "jobs", body, { headers: { "Idempotency-Key": idempotencyKey } }),
  estimate: (body, options) => sendJson("POST", "jobs?dry_run=true", body, options),
  cancel: (id, mode) => sendJson("POST", `${jobPath(id)}/cancel`, { mode }),
  resume: (id) => sendJson("POST", `${jobPath(id)}/resume`),
  remove: (id) => request(jobPath(id), { method: "DELETE" }),
  result: (id) => getJson(`${jobPath(id)}/result`),
  /** What to draw of a matching, null when there is nothing. */
  picture: async (id, options) => {
    const response = await request(`${jobPath(id)}/result/picture`, options);
    return response.status === 204 ? null : response.json();
  },
  events: (id) => `${jobPath(id)}/events`,
  array: (id, name, accept, options = {}) =>
    request(`${jobPath(id)}/result/${name}`, {
      ...options,
      headers: { Accept: accept, ...options.headers },
    }),
  whole: (id, name, accept) => request(`${jobPath(id)}/result`, { headers: { Accept: accept } }),
};

const arrayPath = (id) => `arrays/${encodeURIComponent(id)}`;

export const arrays = {
  remove: (id) => request(arrayPath(id), { method: "DELETE" }),
};

let known = null;

/** What the service can do; asked once a visit. */
export function capabilities() {
  known ??= getJson("capabilities").catch((error) => {
    known = null;
    throw error;
  });
  return known;
}
