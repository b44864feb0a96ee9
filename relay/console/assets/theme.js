// Before anything is painted: the theme that was chosen, if one was.
"use strict";
(() => {
  const chosen = localStorage.getItem("relay-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
