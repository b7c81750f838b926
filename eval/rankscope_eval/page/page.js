"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  // a page that was opened from a file may have no storage
  const stored = (value) => {
    try {
      if (value === undefined) return window.localStorage.getItem("rankscope-theme");
      window.localStorage.setItem("rankscope-theme", value);
    } catch (error) { /* the choice lives as long as the page */ }
    return null;
  };
  const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  const chosen = stored();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    stored(root.dataset.theme);
    show();
  });
  dark.addEventListener("change", show);
  button.hidden = false;
  show();

  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.key === undefined ? null : Number(cell.dataset.key);
  };
  const text = (row, column) => row.cells[column].textContent;
  const compare = (column, sign) => (a, b) => {
    const [x, y] = [key(a, column), key(b, column)];
    if (x !== null && y !== null) return sign * (x - y);
    const numeric = x !== null || y !== null;
    if (numeric) return (x === null) - (y === null); // what is missing stays last
    return sign * text(a, column).localeCompare(text(b, column), "en", { numeric: true });
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const control = document.createElement("button");
      control.type = "button";
      control.append(...head.childNodes);
      head.append(control);
      control.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows].sort(compare(column, up ? 1 : -1));
        table.tBodies[0].append(...rows);
      });
    });
  }

  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((one) => { one.open = true; });
  });
  window.addEventListener("afterprint", () => {
    opened.forEach((one) => { one.open = false; });
    opened = [];
  });
})();
