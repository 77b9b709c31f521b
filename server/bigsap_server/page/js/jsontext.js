/** JSON objects as text: what was typed is sent as it is. A number beyond 2^53 would not survive JSON.parse. */

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g;

/** The members of a valid JSON object as [name, text of the value]. */
function members(text) {
  const found = [];
  let depth = 0;
  let name = null;
  let from = 0;
  const close = (end) => {
    if (name !== null) found.push([JSON.parse(name), text.slice(from, end).trim()]);
    name = null;
  };
  for (const { 0: token, index } of text.matchAll(TOKENS)) {
    if (token === "}" || token === "]") depth -= 1;
    if (depth === 0 && token === "}") close(index);
    if (depth === 1) {
      if (token === ",") close(index);
      else if (token === ":") from = index + 1;
      else if (name === null) name = token;
    }
    if (token === "{" || token === "[") depth += 1;
  }
  return found;
}

/** The text of a valid JSON object with further members; those that it has win, within `options` too. */
export function withMembers(text, further) {
  const own = members(text);
  const names = new Set(own.map(([name]) => name));
  const all = own.map(([name, value]) =>
    name === "options" && further.options && value.startsWith("{")
      ? [name, withMembers(value, further.options)]
      : [name, value]);
  for (const [name, value] of Object.entries(further)) {
    if (!names.has(name)) all.push([name, JSON.stringify(value)]);
  }
  return `{${all.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`;
}
