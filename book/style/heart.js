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

// On a phone code is folded: the words and figures come first, and a tap shows the code.
addEventListener("DOMContentLoaded", () => {
  if (!matchMedia("(max-width: 40rem)").matches) return;
  for (const code of document.querySelectorAll("div.cell > div.cell_input")) {
    const fold = document.createElement("details");
    fold.className = "hide";
    fold.append(Object.assign(document.createElement("summary"), { textContent: "Show code" }));
    code.before(fold);
    fold.append(code);
  }
});

// Whoever selects words of a figure does not open it by that.
addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll("a.heart-figure")) {
    figure.addEventListener("click", (event) => { if (!getSelection().isCollapsed) event.preventDefault(); });
  }
});
