for (const box of document.querySelectorAll(".heart-weights")) {
  const body = box.querySelector("tbody"), said = box.querySelector(".said"), sliders = [...box.querySelectorAll("input")];
  const rank = () => {
    const steps = sliders.map((slider) => Number(slider.value)), sum = steps.reduce((one, other) => one + other, 0);
    sliders.forEach((slider, place) => {
      const share = sum ? Math.round(100 * steps[place] / sum) + " %" : "none";
      slider.nextElementSibling.textContent = share;
      slider.setAttribute("aria-valuetext", share);
    });
    if (!sum) {
      said.textContent = "No dimension has a weight: move a slider.";
      return;
    }
    const rows = [...body.rows].map((row) => {
      const scores = JSON.parse(row.dataset.scores);
      return { row, name: row.dataset.name, score: scores.reduce((all, one, place) => all + one * steps[place], 0) / sum };
    });
    rows.sort((one, other) => other.score - one.score || (one.name < other.name ? -1 : 1));
    rows.forEach(({ row, score }) => {
      row.cells[0].textContent = 1 + rows.filter((other) => other.score > score + 1e-12).length;
      row.cells[2].textContent = score.toFixed(2);
      if (!row.dataset.spread) return;
      const spread = JSON.parse(row.dataset.spread), times = (one) => one.reduce((all, value, place) => all + value * steps[place], 0);
      const reach = Math.sqrt(times(spread.map(times))) / sum;
      row.cells[3].textContent = (score - reach).toFixed(2) + " to " + (score + reach).toFixed(2);
    });
    body.append(...rows.map(({ row }) => row));
    said.textContent = "Ranking: " + rows.slice(0, 3).map(({ row, name }) => row.cells[0].textContent + " " + name).join(", ")
      + (rows.length > 3 ? " and " + (rows.length - 3) + " more." : ".");
  };
  for (const slider of sliders) slider.addEventListener("input", rank);
  for (const button of box.querySelectorAll("button")) button.addEventListener("click", () => {
    const weights = JSON.parse(button.dataset.weights);
    sliders.forEach((slider) => { slider.value = weights[slider.name]; });
    rank();
  });
  box.classList.add("live");
  rank();
}
