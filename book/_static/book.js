// Light or dark from the first, because code has its letters from there; the theme's own script says so a moment later.
const dark = matchMedia("(prefers-color-scheme: dark)").matches
const root = document.documentElement.dataset
if (root.theme === "auto") root.theme = dark ? "dark" : "light"

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

// Pictures further down may wait until the page is there, but not longer: paper has all of them.
addEventListener("load", () =>
  document.querySelectorAll("img[loading=lazy]").forEach((picture) => (picture.loading = "eager")),
)

// What scrolls sideways fades at the side where it goes on.
const cue = (box) => {
  const scrolls = () => getComputedStyle(box).overflowX !== "visible"
  const look = () =>
    box.classList.toggle("cfl-more", scrolls() && box.scrollWidth - box.clientWidth - box.scrollLeft > 8)
  box.addEventListener("scroll", look, { passive: true })
  new ResizeObserver(look).observe(box)
}
addEventListener("load", () =>
  document
    .querySelectorAll(".bd-article :is(.pst-scrollable-table-container, .cell_output, .text_html, pre, mjx-container[display])")
    .forEach(cue),
)

// A picture whose letters a phone would shrink beyond reading scrolls: an inch of 71 pixels gives the smallest, of 9.2
// points, nine pixels.
const widen = (picture) => {
  const inches = picture.getAttribute("width") / (picture.closest(".cell") ? 110 : 150) // as notebooks and pages save them
  if (innerWidth >= 768 || picture.clientWidth >= 71 * inches) return
  const box = document.createElement("div")
  box.className = "cfl-wide"
  box.tabIndex = 0
  picture.replaceWith(box)
  box.append(picture)
  picture.style.width = `${71 * inches}px`
  cue(box)
}
// The tag has the width, so this waits for no picture, and nothing moves when the picture comes.
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".bd-article img").forEach(widen))

// A formula that is wider than its place scrolls, by the arrow keys, too.
addEventListener("load", () =>
  window.MathJax?.startup?.promise?.then(() => {
    const wide = [...document.querySelectorAll("mjx-container[display]")].filter((f) => f.scrollWidth > f.clientWidth)
    wide.forEach((formula) => (formula.tabIndex = 0))
  }),
)

// The list of pages shows where the reader is.
addEventListener("load", () => {
  const list = document.querySelector(".bd-sidebar-primary .sidebar-primary-item:has(nav)")
  const here = list && [...list.querySelectorAll("li.current > a")].pop()
  if (here) list.scrollTop += here.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 3
})
