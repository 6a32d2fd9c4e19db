// How long a turn was typed and how much of it was pasted; the page works without. Nothing is sent but these two numbers.
const form = document.querySelector("form.turn");
if (form) {
  const PAUSE = 2000; // milliseconds without a key that count as not typing
  const box = form.elements.text;
  let last = null, typed = 0, pasted = 0, keys = 0;
  box.addEventListener("input", () => {
    const now = performance.now();
    if (last !== null && now - last < PAUSE) typed += now - last;
    last = now;
    keys += 1;
  });
  const bring = data => { pasted += data ? data.getData("text").length : 0; };
  box.addEventListener("paste", event => bring(event.clipboardData));
  box.addEventListener("drop", event => bring(event.dataTransfer));
  form.addEventListener("submit", () => {
    if (keys) form.elements.typing_ms.value = Math.round(typed);
    form.elements.pasted.value = pasted;
    form.querySelector("button").disabled = true; // one click, one turn
  });
}
document.querySelector("#now")?.scrollIntoView({ block: "center" });
