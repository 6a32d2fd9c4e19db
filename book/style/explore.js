// Figures that a reader can ask. heart_utils/report/explore.py writes the rows; here they take the place of the static picture.
const make = (tag, properties = {}, ...inside) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...inside);
  return node;
};
const percent = (share) => `${Math.round(100 * share)} %`;
const distinct = (rows, column) => [...new Set(rows.map((row) => row[column]))];

// A list of choices with its label; `change` is called with what is chosen, and once at the start.
function addChoice(bar, label, options, change) {
  const list = make("select", {}, ...options.map((option) => new Option(option)));
  list.addEventListener("input", () => change(list.value));
  bar.append(make("label", {}, `${label} `, list));
  return list;
}

// Among many buttons one is reached by the tab key, and arrows lead to the others.
function walkWithArrows(buttons, nColumns) {
  buttons.forEach((button, place) => {
    button.tabIndex = place ? -1 : 0;
    button.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: nColumns(), ArrowUp: -nColumns() };
      const next = buttons[place + steps[event.key]];
      if (!next) return;
      event.preventDefault();
      button.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  });
}

// What a tap shows: each named fact that the row has.
function listFacts(row, shown) {
  const facts = make("dl");
  for (const [column, name] of Object.entries(shown)) {
    if (row[column] === null || row[column] === "") continue;
    const value = String(row[column]);
    const link = value.startsWith("https://") ? make("a", { href: value }, value) : value;
    facts.append(make("dt", {}, name), make("dd", {}, link));
  }
  return facts;
}

// The forest: one line a comparison. Lines that a switch does not match fade; a tap on a line shows what it rests on.
function drawForest(box, { rows, switches, shown }) {
  const bar = make("div", { className: "heart-filter-bar" });
  const count = make("output");
  const lines = [];
  const chosen = {};
  const show = () => {
    for (const { node, row } of lines) {
      const fits = Object.entries(chosen).every(([column, value]) => value === "all" || row[column] === value);
      node.classList.toggle("heart-faded", !fits);
    }
    const fitting = lines.filter(({ node }) => !node.classList.contains("heart-faded"));
    const ahead = fitting.filter(({ row }) => row.win_share > 0.5).length;
    count.textContent = `${fitting.length} of ${lines.length} comparisons; models ahead in ${ahead}`;
  };
  for (const [column, label] of Object.entries(switches)) {
    chosen[column] = "all";
    addChoice(bar, label, ["all", ...distinct(rows, column)], (value) => { chosen[column] = value; show(); });
  }
  const scale = make("p", { className: "heart-scale" }, make("span", {}, "← people better"), make("span", {}, "models better →"));
  const hint = make("p", {}, "Choose a line to see who was asked, about whom, and where it is published.");
  box.append(bar, hint, scale);
  distinct(rows, "group").forEach((group, place) => {
    box.append(make("p", { className: "heart-group" }, make("b", {}, group)));
    for (const row of rows.filter((one) => one.group === group)) {
      const track = make("span", { className: `heart-track heart-colour-${place}`, ariaHidden: "true" });
      const low = row.ci_low ?? row.win_share;
      const range = make("i");
      range.style.cssText = `left:${100 * low}%;width:${100 * ((row.ci_high ?? row.win_share) - low)}%`;
      const dot = make("b", { className: row.evidence === "quoted" ? "heart-hollow" : "" });
      dot.style.left = `${100 * row.win_share}%`;
      track.append(range, dot);
      const ends = row.ci_low === null ? "" : ` (${Math.round(100 * row.ci_low)} to ${Math.round(100 * row.ci_high)})`;
      const summary = make("summary", {}, make("span", {}, row.line), make("span", { className: "heart-share" }, percent(row.win_share) + ends), track);
      const node = make("details", { className: "heart-line" }, summary, listFacts(row, shown));
      box.append(node);
      lines.push({ node, row });
    }
  });
  bar.append(count);
  show();
}

// Squares: one a case, coloured by what the reader chooses; a tap shows the case.
function drawSquares(box, { rows, switches, shown }) {
  const bar = make("div", { className: "heart-filter-bar" });
  const legend = make("p", { className: "heart-legend" });
  const told = make("div", { className: "heart-told", ariaLive: "polite" }, "Choose a square to see what it is.");
  const buttons = rows.map((row) => {
    const square = make("button", { type: "button", className: "heart-square", ariaLabel: `${row.group}, item ${row.item}` });
    square.addEventListener("click", () => {
      buttons.forEach((one) => one.classList.toggle("heart-chosen", one === square));
      told.replaceChildren(make("b", {}, square.ariaLabel), listFacts(row, shown));
    });
    return square;
  });
  const colour = (label) => {
    const column = Object.keys(switches).find((name) => switches[name] === label);
    const sizes = new Map();
    rows.forEach((row) => sizes.set(row[column], (sizes.get(row[column]) || 0) + 1));
    const values = [...sizes.keys()].sort((one, other) => sizes.get(other) - sizes.get(one));
    const place = (value) => Math.min(values.indexOf(value), 7);
    buttons.forEach((square, number) => {
      square.className = square.className.replace(/ ?heart-colour-\d/, "") + ` heart-colour-${place(rows[number][column])}`;
    });
    const named = values.length > 8 ? values.slice(0, 7) : values;
    const entries = named.map((value) => [place(value), `${value}: ${sizes.get(value)}`]);
    const rest = values.slice(named.length).reduce((sum, value) => sum + sizes.get(value), 0);
    if (rest) entries.push([7, `others: ${rest}`]);
    legend.replaceChildren(...entries.map(([number, words]) => make("span", { className: `heart-colour-${number}` }, make("i"), words)));
  };
  addChoice(bar, "Colour by", Object.values(switches), colour);
  box.append(bar, legend);
  for (const group of distinct(rows, "group")) {
    const grid = make("div", { className: "heart-squares" }, ...buttons.filter((_, number) => rows[number].group === group));
    box.append(make("p", { className: "heart-group" }, make("b", {}, group)), grid);
  }
  box.append(told);
  const perRow = () => {
    const top = buttons[0].offsetTop;
    return Math.max(1, buttons.findIndex((square) => square.offsetTop > top));
  };
  walkWithArrows(buttons, perRow);
  colour(Object.values(switches)[0]);
}

// Who beats whom: a table of shares for one panel at a time; a tap on a cell shows its counts.
function drawMatrix(box, { rows, switches }) {
  const bar = make("div", { className: "heart-filter-bar" });
  const table = make("table", { className: "heart-matrix" });
  const told = make("div", { className: "heart-told", ariaLive: "polite" }, "Choose a cell to see its counts.");
  const share = (row) => (row.wins + row.ties / 2) / (row.wins + row.ties + row.losses);
  const show = (panel) => {
    const part = rows.filter((row) => row.panel === panel);
    const names = distinct(part, "row");
    const mean = (name) => {
      const own = part.filter((row) => row.row === name);
      return own.reduce((sum, row) => sum + share(row), 0) / own.length;
    };
    names.sort((one, other) => mean(other) - mean(one));
    const buttons = [];
    const head = make("tr", {}, make("th", { scope: "col" }, "wins of / against"));
    head.append(...names.map((name) => make("th", { scope: "col" }, make("span", {}, name))));
    const body = names.map((name) => {
      const line = make("tr", {}, make("th", { scope: "row" }, name));
      for (const other of names) {
        const row = part.find((one) => one.row === name && one.column === other);
        if (!row) {
          line.append(make("td"));
          continue;
        }
        const won = share(row);
        const cell = make("button", { type: "button", textContent: Math.round(100 * won) });
        cell.setAttribute("aria-label", `${name} against ${other}: ${percent(won)}`);
        cell.style.setProperty("--strength", `${Math.round(Math.min(1, 2 * Math.abs(won - 0.5)) * 100)}%`);
        cell.className = won < 0.5 ? "heart-lost" : "heart-won";
        cell.addEventListener("click", () => {
          const counts = `${row.wins.toLocaleString()} won, ${row.ties.toLocaleString()} tied, ${row.losses.toLocaleString()} lost`;
          told.replaceChildren(make("b", {}, `${name} against ${other}, ${panel}: `), `${counts}; win share ${percent(won)}.`);
        });
        buttons.push(cell);
        line.append(make("td", {}, cell));
      }
      return line;
    });
    table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
    walkWithArrows(buttons, () => names.length - 1);
  };
  addChoice(bar, switches.panel, distinct(rows, "panel"), show);
  box.append(bar, make("div", { className: "heart-matrix-box", tabIndex: 0, role: "group", ariaLabel: "Table" }, table), told);
  show(rows[0].panel);
}

addEventListener("DOMContentLoaded", () => {
  const drawings = { forest: drawForest, squares: drawSquares, matrix: drawMatrix };
  for (const box of document.querySelectorAll("div.heart-explore")) {
    const figure = document.getElementById(box.dataset.figure);
    const image = figure?.querySelector("img");
    if (!image) continue;
    const picture = image.closest("a") ?? image;
    const origin = box.closest("div.cell_output");
    drawings[box.dataset.kind](box, JSON.parse(box.querySelector("script").textContent));
    picture.before(box);
    picture.hidden = true;
    box.hidden = false;
    origin?.remove();
  }
});
