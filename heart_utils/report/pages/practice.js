for (const box of document.querySelectorAll(".heart-practice")) {
  const pages = [...box.querySelectorAll("article")], said = box.querySelector(".said"), end = box.querySelector(".end");
  let votes = [];
  const show = (part) => {
    for (const other of [box.querySelector(".begin"), ...pages, end]) other.hidden = other !== part;
    part.querySelector("h3").focus();
  };
  const begin = () => {
    votes = [];
    for (const page of pages) {
      page.querySelector("form").reset();
      page.querySelector("fieldset").disabled = false;
      page.querySelector("details").hidden = page.querySelector(".next").hidden = true;
      page.querySelector(".skip").hidden = false;
    }
    show(pages[0]);
  };
  const row = (cells, kind) => {
    const line = document.createElement("tr");
    cells.forEach((text, place) => {
      const cell = document.createElement(kind ?? (place ? "td" : "th"));
      if (cell.tagName === "TH") cell.scope = kind ? "col" : "row";
      cell.textContent = text;
      line.append(cell);
    });
    return line;
  };
  // What people chose, if any judged the pair: how many chose the same, of how many, and whether most did.
  const compare = (page, vote) => {
    const people = JSON.parse(page.dataset.people), counts = Object.values(people);
    const same = people[vote] ?? 0;
    return { same, n: counts.reduce((sum, count) => sum + count, 0), most: same > 0 && same === Math.max(...counts) };
  };
  const count = () => {
    const writers = new Map();
    for (const { page, vote } of votes) for (const side of ["a", "b"]) {
      const name = page.dataset[side], seen = writers.get(name) ?? [0, 0, 0];
      writers.set(name, [seen[0] + 1, seen[1] + (vote === side), seen[2] + (vote === "tie")]);
    }
    const lines = [...writers].sort((one, other) => other[1][1] / other[1][0] - one[1][1] / one[1][0]);
    const table = end.querySelector("table");
    table.tHead.replaceChildren(row(["Written by", "Shown", "Chosen", "Tied"], "th"));
    table.tBodies[0].replaceChildren(...lines.map(([name, seen]) => row([name.split(" (")[0], ...seen])));
    const of = (side) => votes.filter(({ vote }) => vote === side).length;
    end.querySelector(".sides").textContent = "Your choices: Reply A " + of("a") + ", Reply B " + of("b") + ", neither "
      + of("tie") + "; skipped " + (pages.length - votes.length) + " of " + pages.length + ".";
    const judged = votes.map(({ page, vote }) => compare(page, vote)).filter(({ n }) => n);
    end.querySelector(".people").textContent = judged.length
      ? "People had judged " + judged.length + " of these pairs; you chose as most of them did in " + judged.filter(({ most }) => most).length + "."
      : "No person has judged any of these pairs, so there are no people's choices to compare yours with.";
  };
  pages.forEach((page, number) => {
    const onward = () => {
      said.textContent = "";
      if (pages[number + 1]) return show(pages[number + 1]);
      count();
      show(end);
    };
    page.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const vote = new FormData(event.target).get("vote"), details = page.querySelector("details");
      votes.push({ page, vote });
      page.querySelector("fieldset").disabled = page.querySelector(".skip").hidden = true;
      const { same, n } = compare(page, vote);
      page.querySelector(".yours").textContent = n ? "Of " + n + " people " + same + " chose as you did." : "";
      details.hidden = page.querySelector(".next").hidden = false;
      details.open = true;
      details.querySelector("summary").focus();
      said.textContent = "Reply A was written by " + page.dataset.a + ", Reply B by " + page.dataset.b + ".";
    });
    page.querySelector(".next").addEventListener("click", onward);
    page.querySelector(".skip").addEventListener("click", onward);
  });
  for (const button of box.querySelectorAll(".begin button, .end button")) button.addEventListener("click", begin);
  box.classList.add("live");
  for (const part of [...pages, end]) part.hidden = true;
}
