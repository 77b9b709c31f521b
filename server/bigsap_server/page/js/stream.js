/**
 * Server-sent events over fetch, because EventSource cannot send the key. A lost connection is taken
 * up again after the last event received (`Last-Event-ID`), so the caller sees each event once.
 */

import { createParser } from "../vendor/eventsource-parser/index.js";
import { ApiError, request } from "./api.js";

const FIRST_WAIT = 500; // ms
const LONGEST_WAIT = 10_000;
// The service sends something at least every 15 s; silence beyond this is a dead connection.
const SILENCE = 45_000;

/** Waits so long (ms), or until `signal` aborts or the network is back; leaves no listener behind. */
function quiet(pause, signal) {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", over);
      window.removeEventListener("online", over);
      resolve();
    };
    const timer = setTimeout(over, pause);
    signal.addEventListener("abort", over);
    window.addEventListener("online", over);
  });
}

/**
 * Follows `path` until `signal` aborts, `onEnd` says that it was the end, or the service refuses.
 *
 * onEvent({id, event, data}). onStatus("connected" | "waiting", ms): for the reader to see.
 * onEnd(): asked when the service has closed the stream; resolves to true when nothing more will come.
 * last: the id to continue after. Resolves to the id of the last event.
 */
export async function follow(path, { onEvent, onStatus, onEnd, signal, last = null }) {
  let wait = FIRST_WAIT;
  let least = 0; // the service's own `retry:`
  while (!signal.aborted) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop);
    let watchdog = 0;
    const heard = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(stop, SILENCE);
    };
    try {
      heard();
      const headers = { Accept: "text/event-stream" };
      if (last !== null) headers["Last-Event-ID"] = last;
      const response = await request(path, { headers, signal: attempt.signal });
      onStatus("connected");
      const parser = createParser({
        onEvent(event) {
          if (last !== null && Number(event.id) <= Number(last)) return;
          if (event.id !== undefined) last = event.id;
          wait = FIRST_WAIT;
          onEvent(event);
        },
        onRetry(milliseconds) {
          least = Math.min(milliseconds, LONGEST_WAIT);
        },
      });
      // 204: all is said already.
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = (await reader?.read()) ?? { done: true };
        if (done) break;
        heard();
        parser.feed(value);
      }
      if (await onEnd()) return last;
    } catch (error) {
      // Too many requests and server trouble pass; other refusals will not.
      if (error instanceof ApiError && error.status < 500 && error.status !== 429) throw error;
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", stop);
    }
    if (signal.aborted) return last;
    const pause = Math.max(least, wait) * (0.75 + Math.random() / 2);
    onStatus("waiting", pause);
    await quiet(pause, signal);
    wait = Math.min(2 * wait, LONGEST_WAIT);
  }
  return last;
}
