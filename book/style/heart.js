// Tables of the class heart-filter get a field for words and a list for each column of few, short entries.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.heart-filter")) {
    const rows = [...table.tBodies[0].rows];
    const text = (cell) => cell.innerText.trim();
    const bar = document.createElement("div");
    bar.className = "heart-filter-bar";
    const tests = [];
    const count = document.createElement("output");
    const add = (label, field) => {
      const box = document.createElement("label");
      box.append(label + " ", field);
      bar.append(box);
      field.addEventListener("input", show);
    };
    function show() {
      rows.forEach((row) => { row.hidden = !tests.every((test) => test(row)); });
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
    }
    const words = document.createElement("input");
    words.type = "search";
    tests.push((row) => words.value.toLowerCase().split(/\s+/).every((word) => row.innerText.toLowerCase().includes(word)));
    add("Words", words);
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const entries = [...new Set(rows.map((row) => text(row.cells[column])))].sort();
      if (entries.length < 2 || entries.length > 8 || entries.some((entry) => entry.length > 24)) return;
      const list = document.createElement("select");
      list.append(new Option("all", ""), ...entries.map((entry) => new Option(entry || "–", entry)));
      tests.push((row) => !list.value || text(row.cells[column]) === list.value);
      add(text(head), list);
    });
    bar.append(count);
    table.parentElement.before(bar);
    show();
  }
});

// One switch shows or hides a page's code; on a phone it is hidden first. Exercises keep theirs.
addEventListener("DOMContentLoaded", () => {
  const title = document.querySelector(".bd-article h1");
  if (!title || !document.querySelector("div.cell > div.cell_input")) return;
  const root = document.documentElement;
  const button = document.createElement("button");
  button.className = "heart-code-switch";
  const show = (hidden) => {
    root.classList.toggle("heart-code-hidden", hidden);
    button.textContent = hidden ? "Show all code" : "Hide all code";
  };
  button.addEventListener("click", () => {
    const hidden = !root.classList.contains("heart-code-hidden");
    sessionStorage.setItem("heart-code-hidden", hidden ? "yes" : "no"); // the next page follows
    show(hidden);
  });
  const chosen = sessionStorage.getItem("heart-code-hidden");
  show(chosen ? chosen === "yes" : matchMedia("(max-width: 40rem)").matches);
  title.after(button);
  // Long code scrolls in its own box, which the keyboard must reach.
  for (const code of document.querySelectorAll("div.cell_input pre")) code.tabIndex = 0;
});

// Whoever selects words of a figure does not open it by that.
addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll("a.heart-figure")) {
    figure.addEventListener("click", (event) => { if (!getSelection().isCollapsed) event.preventDefault(); });
  }
});
