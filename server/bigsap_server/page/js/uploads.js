/** Arrays on their way to the service, in blocks of rows that a broken upload continues from. */

import { ApiError, getJson, request, sendJson, Unreachable } from "./api.js";

const BLOCK = 4 * 2 ** 20; // bytes: small enough to repeat, large enough to be quick
const ATTEMPTS = 6;

/**
 * Uploads and seals `table`; returns the array's id.
 *
 * onProgress(fraction), signal: AbortSignal. A failed block is sent again after asking the service
 * what it has.
 */
export async function upload(table, { onCreated, onProgress, signal }) {
  const [rows, columns] = table.shape;
  const shape = table.vector ? [rows] : [rows, columns];
  const created = await sendJson("POST", "arrays", { dtype: table.dtype, shape }, { signal });
  onCreated?.(created.id);
  const path = `arrays/${encodeURIComponent(created.id)}`;
  const most = Math.min(BLOCK, created.max_block_bytes);
  const step = Math.max(1, Math.floor(most / (columns * table.itemsize)));
  let failures = 0;
  let start = 0;
  while (start < rows) {
    const stop = Math.min(rows, start + step);
    try {
      const body = await table.read(start, stop);
      await request(`${path}/rows/${start}`, {
        method: "PUT",
        body,
        signal,
        headers: { "Content-Type": "application/octet-stream" },
      });
      failures = 0;
      start = stop;
      onProgress?.(start / rows);
    } catch (error) {
      const passes =
        error instanceof Unreachable || (error instanceof ApiError && retriable(error.status));
      failures += 1;
      if (!passes || failures >= ATTEMPTS) throw error;
      await pause(2 ** failures * 250, signal);
      start = await received(path, start, signal);
    }
  }
  await sendJson("POST", `${path}/seal`, undefined, { signal });
  return created.id;
}

const retriable = (status) => status === 408 || status === 429 || status >= 500;

/** The first row that the service lacks, at or before `start`. */
async function received(path, start, signal) {
  try {
    const { received: ranges } = await getJson(path, { signal });
    if (!Array.isArray(ranges)) return start;
    let row = 0;
    for (const [first, stop] of ranges) {
      if (first > row) break;
      row = Math.max(row, stop);
    }
    return row;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return start; // the next block finds out
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("Stopped.", "AbortError"));
    });
  });
}
