/** The two dialogs of the page: the key, and "are you sure". */

import { canBeSent, key } from "./api.js";
import { say } from "./dom.js";

const part = (id) => document.getElementById(id);

/** Asks for a key; resolves to it, or to null when the user closes the dialog. */
export function askForKey(reason) {
  const dialog = part("key-dialog");
  const input = part("key-input");
  const usual = "This service asks for a key. Its operator gives keys out.";
  say(part("key-reason"), key.get() && reason ? `${reason}` : usual);
  input.value = "";
  part("key-forget").hidden = !key.get();
  if (!dialog.open) dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const given = input.value.trim();
      input.value = "";
      resolve(dialog.returnValue === "ok" && given ? given : null);
    }, { once: true });
  });
}

/** A yes-or-no question. */
export function confirmed({ title, text, yes }) {
  const dialog = part("confirm-dialog");
  say(part("confirm-title"), title);
  say(part("confirm-text"), text);
  say(part("confirm-yes"), yes);
  dialog.returnValue = "";
  dialog.showModal();
  part("confirm-no").focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Wires the buttons that open and close the key dialog. */
export function prepareDialogs(onKey) {
  const dialog = part("key-dialog");
  const close = (value) => dialog.close(value);
  part("key-cancel").addEventListener("click", () => close("cancel"));
  part("key-forget").addEventListener("click", () => {
    key.forget();
    close("forget");
    onKey();
  });
  part("key-form").addEventListener("submit", (event) => {
    const input = part("key-input");
    const given = input.value.trim();
    if (given && !canBeSent(given)) {
      event.preventDefault();
      say(part("key-reason"), "This is no key of a service: it has letters that cannot be sent. Was the keyboard set to another language?");
      input.focus();
      return;
    }
    dialog.returnValue = "ok";
  });
  part("key-button").addEventListener("click", async () => {
    const given = await askForKey("");
    if (given) {
      key.set(given);
      onKey();
    }
  });
  for (const one of [dialog, part("confirm-dialog")]) {
    // Escape leaves the last answer in place otherwise.
    one.addEventListener("cancel", () => {
      one.returnValue = "";
    });
  }
}
