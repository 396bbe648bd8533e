// The filter of the statements and the copy buttons. Everything is readable without.
"use strict";

const CHOICES = ["verdict", "evidence", "class"]; // of several values each

function words(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

function setUpFilter(form) {
  const rows = [...document.querySelectorAll("tr[data-text]")];
  const count = document.getElementById("count");

  function matches(row, wanted) {
    const paper = row.closest("[data-paper]").dataset.paper;
    return (!wanted.paper || wanted.paper === paper)
      && CHOICES.every((name) => !wanted[name].length || wanted[name].includes(row.dataset[name]))
      && (!wanted.surprise || "surprise" in row.dataset)
      && wanted.words.every((word) => row.dataset.text.includes(word));
  }

  function apply() {
    const data = new FormData(form);
    const wanted = {
      words: words(data.get("q")), paper: data.get("paper"),
      surprise: data.has("surprise"),
    };
    for (const name of CHOICES) wanted[name] = data.getAll(name);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !matches(row, wanted);
      shown += !row.hidden;
    }
    for (const part of document.querySelectorAll("[data-paper]")) {
      const empty = !part.querySelector("tr[data-text]:not([hidden])");
      part.querySelector("table").hidden = empty;
      part.querySelector(".nothing").hidden = !empty;
    }
    count.value = `${shown} of ${rows.length} statements`;
    remember(data);
  }

  // In the address, so that a filtered list can be kept and passed on.
  function remember(data) {
    const query = new URLSearchParams([...data].filter(([, value]) => value));
    const address = location.pathname + (query.size ? `?${query}` : "") + location.hash;
    try {
      history.replaceState(null, "", address);
    } catch {
      // Some browsers refuse this for files; the filter works all the same.
    }
  }

  function recall() {
    const query = new URLSearchParams(location.search);
    form.elements.q.value = query.get("q") ?? "";
    form.elements.paper.value = query.get("paper") ?? "";
    for (const box of form.querySelectorAll("[type=checkbox]")) {
      box.checked = query.getAll(box.name).includes(box.value);
    }
  }

  recall();
  form.hidden = false;
  form.addEventListener("input", apply);
  form.querySelector("[type=reset]").addEventListener("click", (event) => {
    event.preventDefault(); // the event "reset" comes before the values are back
    form.reset();
    apply();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      form.elements.q.focus();
    }
  });
  apply();
  if (location.hash) document.querySelector(location.hash)?.scrollIntoView();
}

function setUpCopy(button) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "Selected";
    }
  });
}

const filter = document.getElementById("filter");
if (filter) setUpFilter(filter);
if (navigator.clipboard) document.querySelectorAll("[data-copy]").forEach(setUpCopy);
