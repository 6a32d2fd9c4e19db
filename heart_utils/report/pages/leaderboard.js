for (const table of document.querySelectorAll("table.board")) {
  const body = table.tBodies[0], part = table.closest("section"), said = part.querySelector(".said");
  const search = part.querySelector("input");
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    said.textContent = shown + " of " + body.rows.length + " rows";
  });
  const buttons = table.tHead.querySelectorAll("button");
  buttons.forEach((button, column) => button.addEventListener("click", () => {
    const heading = button.parentElement;
    const up = heading.getAttribute("aria-sort") !== "ascending";
    buttons.forEach((other) => other.parentElement.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const place = [...heading.parentElement.cells].indexOf(heading);
    const value = (row) => row.cells[place].dataset.value ?? row.cells[place].textContent;
    const compare = (one, other) => {
      const a = value(one), b = value(other);
      if (a === "" || b === "") return (a === "") - (b === "");
      const gap = a - b;
      return (up ? 1 : -1) * (Number.isNaN(gap) ? a.localeCompare(b) : gap);
    };
    body.append(...Array.from(body.rows).sort(compare));
  }));
}
// Of several leaderboards one is shown: a list of data sets, and one of what each has.
for (const boards of document.querySelectorAll(".boards")) {
  const choice = boards.querySelector(".choice");
  if (!choice) continue;
  const parts = [...boards.querySelectorAll("section")], [data, one] = choice.querySelectorAll("select");
  const show = () => parts.forEach((part) => { part.hidden = part.dataset.set !== data.value || part.dataset.name !== one.value; });
  const offer = () => {
    const of = parts.filter((part) => part.dataset.set === data.value);
    one.replaceChildren(...of.map((part) => new Option(part.dataset.name)));
    show();
  };
  data.append(...[...new Set(parts.map((part) => part.dataset.set))].map((name) => new Option(name || "this", name)));
  data.parentElement.hidden = data.options.length < 2;
  data.addEventListener("input", offer);
  one.addEventListener("input", show);
  choice.hidden = false;
  offer();
}
