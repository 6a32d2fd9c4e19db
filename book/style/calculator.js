// The study calculator: the formula of `plan_study` and `study_cost`, with covariances and quantiles from STUDY_GRID.
const StudyCalculator = (() => {
  const grid = STUDY_GRID;
  // The place of a value among rising marks: the mark below it, and the share of the way to the next.
  const place = (marks, value) => {
    let low = 0;
    while (low < marks.length - 2 && marks[low + 1] <= value) low += 1;
    return [low, Math.min(1, Math.max(0, (value - marks[low]) / (marks[low + 1] - marks[low])))];
  };
  const covariances = (design) => {
    const at = ["dialogue_sd", "rater_sd", "ties"].map((name) => place(grid[name], design[name]));
    const found = [0, 0, 0];
    for (let corner = 0; corner < 8; corner += 1) {
      let row = 0, weight = 1;
      at.forEach(([low, share], axis) => {
        const up = (corner >> axis) & 1;
        weight *= up ? share : 1 - share;
        row = row * [grid.dialogue_sd, grid.rater_sd, grid.ties][axis].length + low + up;
      });
      if (weight) grid.covariances[row].forEach((one, part) => { found[part] += weight * one; });
    }
    const reply = design.dialogue_sd ** 2, taste = design.rater_sd ** 2;
    return { reply: found[0] * reply, replies: found[1] * 2 * reply, taste: found[2] * taste };
  };
  // Quantiles hardly bend in 1 / df.
  const quantile = (row, df) => {
    const [low, share] = place(grid.df.map((one) => -1 / one), -1 / df);
    return row[low] + share * (row[low + 1] - row[low]);
  };
  // How many pairs there are, how often one is compared, and the mean of one over that, which chance makes uneven.
  const meetings = ({ responders, dialogues, pairs }) => {
    const compared = responders * (responders - 1) / 2, part = pairs / compared, met = dialogues * part, uneven = (1 - part) / met;
    return { compared, part, met, inverse: (1 + uneven + 2 * uneven ** 2 + 6 * uneven ** 3) / met };
  };
  const variance = (design, shared, apart) => {
    const { responders: size, dialogues, pairs, votes, raters } = design, { compared, met, inverse } = meetings(design);
    const others = size - 2, verdicts = dialogues * pairs * votes, drawn = raters >= grid.few_raters;
    let slopes = 0, squares = 0, verdict = 0;
    [[apart, 4, 2], [apart / 2 - grid.others, others, others / 2], [apart / 2 + grid.others, others, others / 2]].forEach(([far, times, half]) => {
      const slope = 0.25 / Math.cosh(far / 2) ** 2, near = design.ties * Math.sqrt(4 * slope), ties = near / (1 - design.ties + near);
      slopes += half * slope;
      squares += times * slope ** 2;
      verdict += times * (slope - ties / 4);
    });
    squares /= slopes ** 2;
    verdict /= slopes ** 2;
    const together = compared > 1 ? (1 - 1 / pairs) / (1 - 1 / compared) : 1;
    return {
      verdicts: (verdict - squares * (shared.replies + 2 * shared.taste)) * inverse / votes,
      dialogues: 2 * shared.reply * others / (size * dialogues) * together + squares * shared.replies * inverse,
      raters: 2 * shared.taste * ((1 - votes / raters) * size / (2 * verdicts) * met * inverse + (drawn ? 1 / raters : 0)),
    };
  };
  const effective = (design, varying) => {
    const { responders: size, dialogues, pairs, votes, raters } = design, { compared, part } = meetings(design);
    const uneven = (2 * size + 12) / (2 * size) ** 2;
    const ofDialogues = dialogues / (1 + (1 - part) / part * (uneven * compared - 1) / Math.max(compared - 1, 1));
    if (!varying) return ofDialogues;
    const byRater = (1 - votes / raters) * (uneven * compared - 1 / raters) / (dialogues * pairs * votes / raters);
    return Math.min(ofDialogues, raters / (1 + byRater));
  };
  function gap(design, power, named) {
    const { responders: size, dialogues, pairs, votes, raters } = design, { met, inverse } = meetings(design);
    if (met < grid.least_a_pair) return { why: `not reckoned for fewer than ${grid.least_a_pair} dialogues a pair (${met.toFixed(1)} here)` };
    const varying = raters >= grid.few_raters && design.rater_sd > 0, df = effective(design, varying) - 1;
    const leverage = (size - 1) / (dialogues * pairs * votes) * met * inverse, fewest = Math.min(dialogues, raters);
    const excess = Math.sqrt(varying ? (1 + 3 * leverage) * fewest / (fewest - 1) : 1 + leverage);
    const reach = quantile(named ? grid.named : grid.critical[size - 2], df);
    const errors = excess * reach * (1 - 0.25 / df) + grid.found[power] * Math.sqrt(1 + reach ** 2 / (2 * df));
    const shared = covariances(design), sum = (parts) => parts.verdicts + parts.dialogues + parts.raters;
    const missed = (apart) => errors * Math.sqrt(sum(variance(design, shared, apart))) > apart;
    let low = 0, high = 1;
    while (missed(high)) {
      if (high > grid.largest_gap) return { why: "none: no gap is large enough to be found" };
      high *= 2;
    }
    for (let step = 0; step < 50; step += 1) {
      const middle = (low + high) / 2;
      if (missed(middle)) low = middle; else high = middle;
    }
    const parts = variance(design, shared, high);
    const shares = Object.fromEntries(Object.entries(parts).map(([name, one]) => [name, one / sum(parts)]));
    return { points: grid.points * high, parts: shares };
  }
  function plan(asked) {
    const verdicts = asked.dialogues * asked.pairs * asked.votes;
    const raters = Math.max(Math.ceil(verdicts / asked.load), asked.votes);
    const minutes = verdicts / raters * asked.seconds / 60 + asked.minutes_around, hours = raters * minutes / 60;
    const study = { ...asked, raters };
    const people = { verdicts, raters, minutes, hours, cost: hours * asked.pay };
    people.board = gap(study, asked.power, false);
    people.named = gap(study, asked.power, true);
    const n = asked.judges.length, panel = { ...asked, votes: n, raters: n };
    const calls = asked.dialogues * asked.pairs * asked.orders;
    const prices = asked.judges.map(([input, output]) => calls * (asked.tokens_in * input + asked.tokens_out * output) / 1e6);
    const judges = n && { calls: n * calls, cost: prices.reduce((sum, one) => sum + one, 0) };
    if (n) Object.assign(judges, { board: gap(panel, asked.power, false), named: gap(panel, asked.power, true) });
    return { people, judges };
  }
  return { plan };
})();

// Reliability of mean scores: the sums of `Components.reliability` and `cheapest_design`, from the variances of STUDY_GRID.scored.
const ReliabilityCalculator = (() => {
  const split = (variance, raters, same) => {
    const part = (name) => variance[name] || 0, taste = part("responder:rater") / raters;
    return {
      true: part("responder") + (same ? taste : 0),
      fixed: same ? 0 : taste,
      each: part("responder:dialogue") + part("rest") / raters,
      shift: part("dialogue") + part("dialogue:rater") / raters,
      shift_fixed: same ? 0 : part("rater") / raters,
    };
  };
  function predict({ variance }, { dialogues, raters, same }) {
    const one = split(variance, raters, same), error = one.each / dialogues + one.fixed;
    return { relative: one.true / (one.true + error), absolute: one.true / (one.true + error + one.shift / dialogues + one.shift_fixed) };
  }
  function cheapest({ variance, n_raters }, { wanted, same, cost_dialogue, cost_rating }) {
    const found = [];
    for (let raters = 1; raters <= (same ? n_raters : STUDY_GRID.most_raters); raters += 1) {
      const one = split(variance, raters, same), room = one.true * (1 - wanted) / wanted - one.fixed;
      const dialogues = room > 0 ? Math.max(2, Math.ceil(one.each / room - 1e-9)) : Infinity;
      if (dialogues <= 10000) found.push({ raters, dialogues, cost: dialogues * (cost_dialogue + raters * cost_rating) });
    }
    return found.sort((one, other) => one.cost - other.cost)[0];
  }
  return { predict, cheapest };
})();

// Studies of whole conversations: the sums of `difference_error`, and the gap that a study of one design finds.
const ConversationCalculator = (() => {
  const least = 3; // seekers or raters that can speak of others like them
  const quantile = (row, df) => {
    const marks = STUDY_GRID.df.map((one) => -1 / one);
    let low = 0;
    while (low < marks.length - 2 && marks[low + 1] <= -1 / df) low += 1;
    const share = (-1 / df - marks[low]) / (marks[low + 1] - marks[low]);
    return row[low] + share * (row[low + 1] - row[low]);
  };
  const subsets = (names) => names.reduce((found, name) => [...found, ...found.map((one) => [...one, name])], [[]]).filter((one) => one.length);
  const known = (variance, name) => Object.keys(variance).some((one) => one.split(":").includes(name));
  const product = (sizes, names) => names.reduce((sum, name) => sum * (sizes[name] || 1), 1);
  function error(variance, sizes, fixed) {
    const varying = Object.keys(sizes).filter((name) => name !== "repeat" && !fixed.includes(name));
    const effects = subsets(varying), cells = product(sizes, varying), parts = new Map(effects.map((one) => [one.join(":"), 0]));
    for (const [name, part] of Object.entries(variance)) {
      const named = name.split(":");
      if (name !== "rest" && name !== "repeat" && !named.includes("responder")) continue;
      const inside = name === "rest" ? Object.keys(sizes) : name === "repeat" ? Object.keys(sizes).filter((one) => one !== "rater") : named.filter((one) => one !== "responder");
      const effect = varying.filter((one) => inside.includes(one));
      if (!effect.length) continue;
      const averaged = product(sizes, inside.filter((one) => !varying.includes(one)));
      parts.set(effect.join(":"), parts.get(effect.join(":")) + 2 * Math.max(part, 0) / averaged);
    }
    const signed = effects.map((effect) => {
      const square = effects.filter((other) => effect.every((one) => other.includes(one)))
        .reduce((sum, other) => sum + parts.get(other.join(":")) * cells / product(sizes, other), 0);
      return { part: -((-1) ** effect.length) * square, alone: effect.length === 1, free: effect.reduce((sum, one) => sum * (sizes[one] - 1), 1) };
    });
    const total = (chosen) => chosen.reduce((sum, one) => sum + one.part, 0);
    const few = varying.some((name) => name !== "dialogue" && sizes[name] < least);
    const used = few ? signed : [signed, ...signed.filter((one) => one.alone).map((one) => [one])].reduce((best, one) => (total(one) > total(best) ? one : best));
    return { error: Math.sqrt(total(used) / cells), df: few ? NaN : total(used) ** 2 / used.reduce((sum, one) => sum + one.part ** 2 / one.free, 0) };
  }
  function plan(variance, asked) {
    const sizes = { dialogue: asked.starts, seeker: asked.seekers, rater: asked.raters, repeat: asked.repeats };
    for (const name of ["seeker", "rater"]) if (!known(variance, name)) delete sizes[name];
    const fixed = asked.fixed ? ["seeker", "rater"] : [], found = error(variance, sizes, fixed);
    const conversations = asked.starts * asked.seekers * asked.repeats * asked.responders;
    const cost = asked.starts * asked.cost_start + conversations * (asked.turns * asked.cost_turn + asked.raters * asked.cost_judging);
    const shift = found.df ? quantile(STUDY_GRID.shift[asked.power], found.df) : NaN;
    return { ...found, conversations, cost, gap: shift * found.error };
  }
  // Of all designs that cost at most as much as this one, that with the smallest error.
  function best(variance, asked) {
    const { cost } = plan(variance, asked), found = [];
    const upTo = (name, most) => [1, 2, 3, 4, 6, 8].filter((n) => n <= (known(variance, name) ? most : 1));
    for (const seekers of upTo("seeker", 8)) for (const repeats of [1, 2, 4]) for (const raters of upTo("rater", 8)) {
      const each = plan(variance, { ...asked, starts: 1, seekers, repeats, raters }).cost;
      const design = { ...asked, seekers, repeats, raters, starts: Math.floor(cost / each + 1e-9) };
      if (design.starts >= 2) found.push({ ...design, ...plan(variance, design) });
    }
    return found.filter((one) => one.gap).sort((one, other) => Math.round(1e6 * (one.gap - other.gap)) || other.seekers - one.seekers)[0];
  }
  return { known, error, plan, best };
})();

for (const box of document.querySelectorAll(".heart-calculator")) {
  const form = box.querySelector("form"), said = box.querySelector(".said");
  const judges = form.querySelector("tbody");
  for (const { name, prices } of STUDY_GRID.judges) {
    const row = judges.insertRow();
    const cell = (field, label) => row.insertCell().append(Object.assign(field, { ariaLabel: label }));
    const input = (type, value) => Object.assign(document.createElement("input"), { type, value, min: 0, step: "any", autocomplete: "off" });
    const chosen = document.createElement("label"), tick = input("checkbox", "");
    tick.checked = true;
    chosen.append(tick, " " + name);
    row.insertCell().append(chosen);
    cell(input("number", prices[0]), `${name}: USD for a million tokens in`);
    cell(input("number", prices[1]), `${name}: USD for a million tokens out`);
  }
  const words = (value, digits = 0) => value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
  const share = (value) => Math.round(100 * value) + " %";
  const points = ({ points, why }) => why || `${words(points)} points (wins ${share(1 / (1 + Math.exp(-points / STUDY_GRID.points)))})`;
  const sources = ({ parts }) => parts ? ["verdicts", "dialogues", "raters"].map((name) => `${name} ${share(parts[name])}`).join(", ") : "–";
  const show = () => {
    const fields = [...form.elements].filter((field) => field.name), asked = {};
    for (const field of fields) asked[field.name] = Number(field.value);
    form.elements.pairs.max = asked.responders * (asked.responders - 1) / 2;
    const wrong = [...form.elements].find((field) => field.willValidate && !field.checkValidity());
    if (wrong) {
      const label = wrong.ariaLabel || wrong.labels[0].textContent.trim();
      said.textContent = `${label}: give a number from ${wrong.min}${wrong.max ? " to " + wrong.max : ""}.`;
      return;
    }
    asked.power = form.elements.power.value;
    asked.ties /= 100;
    asked.judges = [...judges.rows].filter((row) => row.querySelector("[type=checkbox]").checked)
      .map((row) => [...row.querySelectorAll("[type=number]")].map((field) => Number(field.value)));
    const { people, judges: panel } = StudyCalculator.plan(asked);
    const by = (write) => [write(people), panel ? write(panel) : "–"];
    const shown = {
      board: by((one) => points(one.board)),
      named: by((one) => points(one.named)),
      parts: by((one) => sources(one.board)),
      verdicts: [words(people.verdicts), panel ? `${words(panel.calls)} calls` : "–"],
      raters: [words(people.raters), words(asked.judges.length)],
      hours: [`${words(people.hours)} (${words(people.minutes)} minutes each)`, "–"],
      cost: [words(people.cost), panel ? `${words(panel.cost)} USD` : "–"],
    };
    for (const [name, cells] of Object.entries(shown)) {
      const row = box.querySelector(`[data-row=${name}]`);
      cells.forEach((text, column) => { row.cells[column + 1].textContent = text; });
    }
    const also = panel && panel.board.points ? `, and these judges one of ${words(panel.board.points)}.` : ".";
    said.textContent = people.board.why
      ? `The smallest gap of this design is ${people.board.why}.`
      : `With this design people can detect a difference of ${words(people.board.points)} rating points${also}`;
  };
  const scores = box.querySelector("form.scores");
  scores.elements.like.append(...Object.keys(STUDY_GRID.scored).map((name) => new Option(name)));
  const rely = () => {
    if (!scores.checkValidity()) return;
    const asked = {};
    for (const { name, value } of scores.elements) if (name) asked[name] = Number(value);
    for (const [column, party] of ["people", "judges"].entries()) {
      const found = STUDY_GRID.scored[scores.elements.like.value][party], alone = found.n_raters === 1;
      const study = { ...asked, same: scores.elements.again.value === "same" || alone, cost_rating: asked[`cost_${party}`] };
      study.raters = study.same ? Math.min(asked.scorers, found.n_raters) : asked.scorers;
      const { relative, absolute } = ReliabilityCalculator.predict(found, study);
      const best = ReliabilityCalculator.cheapest(found, study);
      const by = (raters) => (alone ? "" : ` with ${raters} ${raters === 1 ? "rater" : "raters"}`);
      const shown = {
        relative: words(relative, 2) + by(study.raters),
        absolute: words(absolute, 2),
        cheapest: best ? `${words(best.dialogues)} dialogues${by(best.raters)}, cost ${words(best.cost)}` : "none is enough",
      };
      for (const [name, text] of Object.entries(shown)) box.querySelector(`[data-row=${name}]`).cells[column + 1].textContent = text;
    }
  };
  const talks = box.querySelector("form.conversations");
  talks.elements.like.append(...Object.keys(STUDY_GRID.conversations).map((name) => new Option(name)));
  const talk = () => {
    if (!talks.checkValidity()) return;
    const asked = {};
    for (const { name, value } of talks.elements) if (name) asked[name] = Number(value) || 0;
    asked.power = form.elements.power.value;
    asked.fixed = talks.elements.holds.value === "these";
    const { variance, of } = STUDY_GRID.conversations[talks.elements.like.value];
    // A set that does not vary seekers, or has no raters beside them, says nothing of more of them.
    for (const name of ["seeker", "rater"]) {
      const field = talks.elements[`${name}s`];
      field.disabled = !ConversationCalculator.known(variance, name);
      if (field.disabled) asked[`${name}s`] = 1;
    }
    const found = ConversationCalculator.plan(variance, asked), best = ConversationCalculator.best(variance, asked);
    const shown = {
      conversations: words(found.conversations),
      "talk-cost": words(found.cost),
      "talk-error": `${words(found.error, 2)} of ${of}`,
      "talk-gap": found.gap ? `${words(found.gap, 2)} of ${of}` : "not known: fewer than three cannot speak of others like them",
      "talk-best": best ? `${words(best.starts)} starts, seekers ${best.seekers}, repeats ${best.repeats}, raters ${best.raters}: ${words(best.gap, 2)}` : "none",
    };
    for (const [name, text] of Object.entries(shown)) box.querySelector(`[data-row=${name}]`).cells[1].textContent = text;
  };
  for (const event of ["input", "change"]) talks.addEventListener(event, talk);
  talks.addEventListener("submit", (event) => event.preventDefault());
  form.elements.power.addEventListener("change", talk);
  talk();
  scores.addEventListener("input", rely);
  scores.addEventListener("submit", (event) => event.preventDefault());
  rely();
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  box.hidden = false;
  show();
}
