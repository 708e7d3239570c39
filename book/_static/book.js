// Paper shows what is folded, on white.
const folded = () => document.querySelectorAll("details:not([open])")
let opened = [], theme
addEventListener("beforeprint", () => {
  opened = [...folded()]
  opened.forEach((part) => (part.open = true))
  theme = document.documentElement.dataset.theme
  document.documentElement.dataset.theme = "light"
})
addEventListener("afterprint", () => {
  opened.forEach((part) => (part.open = false))
  document.documentElement.dataset.theme = theme
})

// A formula that is wider than its place scrolls, by the arrow keys, too.
addEventListener("load", () =>
  window.MathJax?.startup?.promise?.then(() => {
    const wide = [...document.querySelectorAll("mjx-container[display]")].filter((f) => f.scrollWidth > f.clientWidth)
    wide.forEach((formula) => (formula.tabIndex = 0))
  }),
)
