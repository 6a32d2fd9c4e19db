// Figures that a reader can ask. `explore` of heart_utils/report/figures.py writes the rows; here they take the place of the static picture.
const make = (tag, properties = {}, ...inside) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...inside);
  return node;
};
const percent = (share) => `${Math.round(100 * share)} %`;
const distinct = (rows, column) => [...new Set(rows.map((row) => row[column]))];

// A list of choices with its label; `change` is called with what is chosen.
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

// A line with an interval and a dot on a scale from `least` to `most`; a value is a share of it.
function drawTrack(value, low, high, [least, most], classes) {
  const place = (number) => 100 * (number - least) / (most - least);
  const range = make("i");
  const dot = make("b", { className: classes.includes("heart-hollow") ? "heart-hollow" : "" });
  range.style.cssText = `left:${place(low ?? value)}%;width:${place(high ?? value) - place(low ?? value)}%`;
  dot.style.left = `${place(value)}%`;
  return make("span", { className: `heart-track ${classes}`, ariaHidden: "true" }, range, dot);
}

// A row of a table: headings of columns, or the heading of a row and its cells.
function makeRow(entries, scope = "row") {
  return make("tr", {}, ...entries.map((entry, place) => (
    scope === "col" || !place ? make("th", { scope }, entry) : make("td", {}, entry))));
}

function addButton(bar, words, act) {
  const button = make("button", { type: "button" }, words);
  button.addEventListener("click", act);
  bar.append(button);
}

// The forest: one line a comparison. Lines that a switch does not match fade; a tap on a line shows what it rests on.
// Studies whose sources give no size (cards) are marks at the side that they favour.
function drawForest(box, { rows, switches, shown, cards = [] }) {
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
    // A study counts once: for a side where all its intervals lie on that side of one half.
    const rowsOf = (study) => fitting.map(({ row }) => row).filter((row) => (row.study ?? row.line) === study);
    const studies = [...new Set(fitting.map(({ row }) => row.study ?? row.line))].map(rowsOf);
    const models = studies.filter((rows) => rows.every((row) => row.ci_low > 0.5)).length;
    const people = studies.filter((rows) => rows.every((row) => row.ci_high !== null && row.ci_high < 0.5)).length;
    const unclear = studies.length - models - people;
    count.textContent = `${fitting.length} of ${lines.length} comparisons, ${studies.length} studies: clearly models ${models}, not clear ${unclear}, clearly people ${people}`;
  };
  for (const [column, label] of Object.entries(switches)) {
    chosen[column] = "all";
    addChoice(bar, label, ["all", ...distinct(rows, column)], (value) => { chosen[column] = value; show(); });
  }
  const half = (...words) => make("span", {}, ...words.map((one) => make("span", {}, one)));
  const scale = make("p", { className: "heart-axis" }, half("0 %", "← people better"), make("b", {}, "50 %"), half("models better →", "100 %"));
  const hint = make("p", {}, "Choose a line to see who was asked, about whom, and where it is published.");
  box.append(bar, hint, scale);
  distinct(rows, "group").forEach((group, place) => {
    box.append(make("p", { className: "heart-group" }, make("b", {}, group)));
    for (const row of rows.filter((one) => one.group === group)) {
      const track = drawTrack(row.win_share, row.ci_low, row.ci_high, [0, 1],
        `heart-colour-${place}${row.evidence === "quoted" ? " heart-hollow" : ""}`);
      const ends = row.ci_low === null ? "" : ` (${Math.round(100 * row.ci_low)} to ${Math.round(100 * row.ci_high)})`;
      const summary = make("summary", {}, make("span", {}, row.line), make("span", { className: "heart-share" }, percent(row.win_share) + ends), track);
      const node = make("details", { className: "heart-line" }, summary, listFacts(row, shown));
      box.append(node);
      lines.push({ node, row });
    }
  });
  bar.append(count);
  if (cards.length) box.append(listUnsized(cards));
  show();
}

function listUnsized(cards) {
  const sides = { "◁ favour people": ["people"], "◇ both, or neither": ["both", "neither"], "favour models ▷": ["models"] };
  const columns = Object.entries(sides).map(([words, kinds]) => make("div", {}, make("b", {}, words),
    ...cards.filter((one) => kinds.includes(one.favours)).map((one) => make("a", { href: one.source }, one.study))));
  const title = make("p", { className: "heart-group" }, make("b", {}, `${cards.length} more, whose sources give no size that could be drawn`));
  return make("div", {}, title, make("div", { className: "heart-unsized" }, ...columns));
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
function drawMatrix(box, { rows, switches, cards = [] }) {
  const bar = make("div", { className: "heart-filter-bar" });
  const table = make("table", { className: "heart-matrix" });
  const told = make("div", { className: "heart-told", ariaLive: "polite" }, cards.length
    ? "Choose a cell to see its counts, or a name at the left to see its card." : "Choose a cell to see its counts.");
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
      const card = cards.find((one) => one.row === name);
      const heading = make(card ? "button" : "span", { className: "heart-name" }, name);
      if (card) {
        heading.type = "button";
        const facts = Object.keys(card).filter((fact) => fact !== "row");
        heading.addEventListener("click", () => {
          told.replaceChildren(make("b", {}, name), listFacts(card, Object.fromEntries(facts.map((fact) => [fact, fact]))));
        });
        buttons.push(heading);
      }
      const line = make("tr", {}, make("th", { scope: "row" }, heading));
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
    walkWithArrows(buttons, () => names.length - (cards.length ? 0 : 1));
  };
  addChoice(bar, switches.panel, distinct(rows, "panel"), show);
  box.append(bar, make("div", { className: "heart-matrix-box", tabIndex: 0, role: "group", ariaLabel: "Table" }, table), told);
  show(rows[0].panel);
}

// Guess, then see: the first row is asked for; it and the groups behind it are shown once a guess is made.
function drawGuess(box, { rows, switches }) {
  const [asked, ...groups] = rows;
  const signed = (number) => `${number > 0 ? "+" : ""}${Number(number).toFixed(1)}`;
  const slider = make("input", { type: "range", min: asked.least, max: asked.most, step: 0.1, value: 0 });
  const guess = make("output");
  const told = make("div", { className: "heart-told", ariaLive: "polite" });
  const say = () => {
    guess.textContent = `Your guess: ${signed(slider.value)} points`;
    slider.setAttribute("aria-valuetext", guess.textContent);
  };
  const addLine = (row, words) => {
    const track = drawTrack(row.value, row.ci_low, row.ci_high, [row.least, row.most], "heart-colour-0");
    const mark = (value, className) => {
      const node = make("i", { className });
      node.style.left = `${100 * (value - row.least) / (row.most - row.least)}%`;
      track.prepend(node);
    };
    (row.scores ?? []).forEach((score) => mark(score, "heart-one"));
    if (row === asked) mark(slider.value, "heart-guessed");
    const share = make("span", { className: "heart-share" }, words);
    told.append(make("div", { className: "heart-row" }, make("span", {}, row.label), share, track));
  };
  const reveal = () => {
    const [value, low, high] = [asked.value, asked.ci_low, asked.ci_high].map((number) => number.toFixed(2));
    const inside = slider.value >= asked.ci_low && slider.value <= asked.ci_high;
    const found = inside ? "inside the interval" : "outside the interval";
    told.replaceChildren(make("p", {}, `You guessed ${signed(slider.value)}, ${found}. Measured: ${value} points (${low} to ${high}).`));
    addLine(asked, "◆ your guess, ● measured");
    told.append(make("p", {}, "The means behind it, and each recipient as a thin line:"));
    for (const row of groups) addLine(row, `${row.value.toFixed(2)} (${row.ci_low.toFixed(2)} to ${row.ci_high.toFixed(2)})`);
  };
  slider.addEventListener("input", say);
  const ends = [asked.least, 0, asked.most].map((end) => make("span", {}, signed(end).replace(".0", "")));
  const scale = make("span", { className: "heart-scale", ariaHidden: "true" }, ...ends);
  const bar = make("div", { className: "heart-filter-bar" }, guess);
  addButton(bar, "See what was measured", reveal);
  box.append(make("label", { className: "heart-ask" }, switches.value, slider), scale, bar, told);
  say();
}

// Tick a rubric: HeartBench's rule on one question at a time, item by item.
function drawRubric(box, { rows, switches }) {
  const bar = make("div", { className: "heart-filter-bar" });
  const items = make("fieldset", {}, make("legend", {}, "Items that the reply hits"));
  const table = make("table", { className: "heart-matrix heart-sums" });
  const told = make("p", { ariaLive: "polite" });
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  let boxes;
  const score = () => {
    const part = boxes.filter(({ row }) => row.points !== null);
    const vetoed = rule.value === "as in the paper" && boxes.some(({ row, tick }) => row.points === null && tick.checked);
    const found = distinct(part.map(({ row }) => row), "ability").map((ability) => {
      const own = part.filter(({ row }) => row.ability === ability);
      const earned = sum(own.map(({ row, tick }) => (tick.checked ? row.points : 0)));
      const [least, most] = [Math.min, Math.max].map((end) => sum(own.map(({ row }) => end(row.points, 0))));
      const points = vetoed ? 0 : 100 * Math.log(earned - least + 1) / Math.log(most - least + 1);
      return { ability, earned, least, most, points };
    });
    const mean = sum(found.map((one) => one.points)) / found.length;
    const share = 100 * Math.max(0, sum(found.map((one) => one.earned)) / sum(found.map((one) => one.most)));
    table.tBodies[0].replaceChildren(...found.map((one) => makeRow([one.ability, one.earned, one.least, one.most, one.points.toFixed(1)])));
    told.textContent = `Score of this question: ${mean.toFixed(1)} of 100, the mean of its abilities. `
      + `By the share of positive points: ${share.toFixed(1)}.`;
  };
  const show = (question) => {
    boxes = rows.filter((row) => row.question === question).map((row) => ({ row, tick: make("input", { type: "checkbox" }) }));
    const say = ({ points, item, ability }) => (points === null ? " writes the user's next words (veto item)"
      : ` ${points > 0 ? "+" : ""}${points}: item ${item}, ${ability}`);
    items.replaceChildren(items.firstChild, ...boxes.map(({ row, tick }) => make("label", {}, tick, say(row))));
    score();
  };
  const tickAll = (fits) => { boxes.forEach(({ row, tick }) => { tick.checked = fits(row); }); score(); };
  items.addEventListener("input", score);
  table.append(make("thead", {}, makeRow(["ability", "earned", "fewest", "most", "score"], "col")), make("tbody"));
  addChoice(bar, switches.question, distinct(rows, "question"), show);
  const rule = addChoice(bar, "Veto", ["as released", "as in the paper"], score);
  addButton(bar, "Nothing", () => tickAll(() => false));
  addButton(bar, "All that is good", () => tickAll((row) => row.points > 0));
  addButton(bar, "Everything", () => tickAll(() => true));
  box.append(bar, items, told, make("div", { className: "heart-matrix-box" }, table));
  show(rows[0].question);
}

// The same reply by all raters: one question at a time, a row a reply, a column a rater.
function drawRaters(box, { rows, switches }) {
  const bar = make("div", { className: "heart-filter-bar" });
  const table = make("table", { className: "heart-matrix" });
  const told = make("p", { ariaLive: "polite" });
  const number = make("input", { type: "number", min: 1, max: rows[0].scores.length, value: 1 });
  const show = () => {
    const part = rows.filter((row) => row.panel === panels.value);
    const place = Math.min(Math.max(number.value || 1, 1), part[0].scores.length) - 1;
    const raters = distinct(part, "rater");
    const ranges = [];
    const lines = distinct(part, "row").map((name) => {
      const scores = raters.map((rater) => part.find((row) => row.row === name && row.rater === rater).scores[place]);
      const given = scores.filter((score) => score > 0);
      ranges.push(Math.max(...given) - Math.min(...given));
      const line = makeRow([name, ...scores.map((score) => (score > 0 ? score : "–")), ranges.at(-1)]);
      scores.forEach((score, column) => {
        line.cells[column + 1].className = "heart-shade";
        line.cells[column + 1].style.setProperty("--strength", `${score > 0 ? 25 * (score - 1) : 0}%`);
      });
      return line;
    });
    const alike = raters.map((rater) => part.find((row) => row.rater === rater).icc?.toFixed(2) ?? "");
    table.replaceChildren(
      make("thead", {}, makeRow(["reply by", ...raters.map((rater) => make("span", {}, rater)), make("span", {}, "range")], "col")),
      make("tbody", {}, ...lines), make("tfoot", {}, makeRow(["ICC with clinicians", ...alike, ""])));
    const mean = ranges.reduce((total, range) => total + range, 0) / ranges.length;
    told.textContent = `Question ${place + 1} of ${part[0].scores.length}: from the lowest to the highest score of a reply `
      + `it is ${mean.toFixed(1)} points on average.`;
  };
  const panels = addChoice(bar, switches.panel, distinct(rows, "panel"), show);
  number.addEventListener("input", show);
  bar.append(make("label", {}, "Question ", number));
  addButton(bar, "Next question", () => { number.value = Number(number.value) % number.max + 1; show(); });
  box.append(bar, told, make("div", { className: "heart-matrix-box", tabIndex: 0, role: "group", ariaLabel: "Table" }, table));
  show();
}

addEventListener("DOMContentLoaded", () => {
  const drawings = { forest: drawForest, squares: drawSquares, matrix: drawMatrix,
    guess: drawGuess, rubric: drawRubric, raters: drawRaters };
  for (const box of document.querySelectorAll("div.heart-explore")) {
    const figure = document.getElementById(box.dataset.figure);
    if (!figure) continue;
    const told = JSON.parse(box.querySelector("script").textContent);
    const rows = told.rows.map((row) => Object.fromEntries(row.map((value, place) => [told.columns[place], value])));
    drawings[box.dataset.kind](box, { ...told, rows });
    box.hidden = false;
    // It takes the place of a picture; what joins a table stays below it.
    const image = figure.querySelector("img, a.heart-figure > svg");
    if (!image) continue;
    const picture = image.closest("a") ?? image;
    const origin = box.closest("div.cell_output");
    picture.before(box);
    picture.hidden = true;
    origin?.remove();
  }
});
