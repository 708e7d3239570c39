// How search ranks: words of a title and the glossary first, entries of the API behind the chapters that explain them.
var Scorer = {
  score: ([page, , , , score]) => score - (page.includes("/api") ? 20 : 0) + (page.includes("glossary") ? 4 : 0),
  objNameMatch: 6,
  objPartialMatch: 2,
  objPrio: { 0: 5, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 3, // "tau" is in "taught", too
  term: 5,
  partialTerm: 1,
}
