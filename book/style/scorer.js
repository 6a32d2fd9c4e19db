// Chapters and pages of prose come before the pages of functions in what a search finds.
var Scorer = {
  score: ([page, title, anchor, description, score]) => (page.startsWith("book/api") ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
