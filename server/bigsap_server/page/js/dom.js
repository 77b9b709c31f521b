/** Building elements. Text only ever enters as text nodes, so nothing the service says can become markup. */

/**
 * An element with attributes, listeners (`onclick: f`) and children (nodes, strings, null, lists).
 * `true` sets a bare attribute; `false`, `null` and `undefined` leave it out.
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return node;
}

/** Replaces what `node` holds. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
}

/** Sets text only where it differs: a live region must not repeat itself. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

let count = 0;

/** An id that is used once on this page. */
export function freshId(prefix) {
  count += 1;
  return `${prefix}-${count}`;
}

/** A term and its description for a `<dl>`. */
export function fact(term, description) {
  return el("div", {}, el("dt", {}, term), el("dd", {}, description));
}

/** Offers `blob` to the user as a file. */
export function saveAs(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  // Not at once: the browser may still be reading it.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
