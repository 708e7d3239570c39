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
