// A plain script in the head, so that the page never flashes in the wrong colours. The one place
// that decides between light and dark: what was chosen, else what the system has.
"use strict";
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const chosen = localStorage.getItem("bigsap-theme");
    const dark = chosen === "dark" || (chosen !== "light" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
  };
  document.addEventListener("bigsap-theme", apply); // app.js says when to look again
  apply();
})();
