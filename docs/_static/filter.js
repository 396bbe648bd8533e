// Filters the items of a page and sorts its tables. Everything is readable without.
"use strict";
(() => {
  const form = document.querySelector("form.filter");
  const items = [...document.querySelectorAll("[data-item]")];
  const texts = new Map(items.map((item) => [item, item.textContent.toLowerCase()]));
  const output = form?.querySelector("output");
  const sections = [...document.querySelectorAll("section section")].filter(
    (section) => section.querySelector("article[data-item]"));

  function filter() {
    const data = new FormData(form);
    const words = data.get("words").toLowerCase().split(/\s+/).filter(Boolean);
    const names = new Set([...data.keys()].filter((name) => name !== "words"));
    for (const item of items) {
      item.hidden = !words.every((word) => texts.get(item).includes(word))
        || [...names].some((name) => !data.getAll(name).includes(item.dataset[name]));
    }
    for (const section of sections) {
      section.hidden = !section.querySelector("article[data-item]:not([hidden])");
    }
    const shown = items.filter((item) => !item.hidden).length;
    output.value = `${shown} of ${items.length} ${form.dataset.what.toLowerCase()}`;
  }

  function order(heading) {
    const rising = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const body = heading.closest("table").tBodies[0];
    const text = (row) => row.cells[heading.cellIndex].textContent.trim();
    const compare = (one, other) => {
      const [a, b] = [text(one), text(other)];
      if (!a !== !b) return a ? -1 : 1; // Empty ones last.
      const [x, y] = [parseFloat(a), parseFloat(b)];
      const sign = isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y;
      return rising ? sign : -sign;
    };
    body.append(...[...body.rows].sort(compare));
  }

  for (const heading of document.querySelectorAll("table.sortable thead th")) {
    heading.tabIndex = 0;
    heading.addEventListener("click", () => order(heading));
    heading.addEventListener("keydown", (event) => {
      if (event.key === "Enter") order(heading);
    });
  }
  if (form) {
    form.hidden = false;
    form.addEventListener("input", filter);
    form.addEventListener("reset", () => setTimeout(filter));
    form.addEventListener("submit", (event) => event.preventDefault());
    filter();
  }
})();
