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

// A picture of many panels, which a phone would shrink beyond reading, scrolls.
const widen = (picture) => {
  const inches = picture.naturalWidth / (picture.closest(".cell") ? 100 : 150) // as notebooks and pages save them
  if (inches < 7 || picture.clientWidth > 55 * inches) return
  const box = document.createElement("div")
  box.className = "cfl-wide"
  box.tabIndex = 0
  picture.replaceWith(box)
  box.append(picture)
  picture.style.width = `${60 * inches}px`
}
addEventListener("load", () =>
  document.querySelectorAll(".bd-article img").forEach((picture) => {
    if (picture.complete) widen(picture)
    else picture.addEventListener("load", () => widen(picture), { once: true })
  }),
)

// A formula that is wider than its place scrolls, by the arrow keys, too.
addEventListener("load", () =>
  window.MathJax?.startup?.promise?.then(() => {
    const wide = [...document.querySelectorAll("mjx-container[display]")].filter((f) => f.scrollWidth > f.clientWidth)
    wide.forEach((formula) => (formula.tabIndex = 0))
  }),
)
