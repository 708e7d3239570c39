/* Step-throughs (book/_ext/steps.py): all frames are in the page; this shows one of them at a time. */
"use strict";

/* Where a reader is, and where a key or a button leads; it knows nothing of the page. */
function stepper(count, variants, start) {
  const keys = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -3, PageUp: 3, Home: -count, End: count };
  const state = { step: 0, variant: 0 };
  const api = {
    state,
    go(step) {
      state.step = Math.max(0, Math.min(count - 1, step));
      return state.step;
    },
    move: (by) => api.go(state.step + by),
    key(name) {
      if (!(name in keys)) return false;
      api.move(keys[name]);
      return true;
    },
    show(variant) {
      if (variant >= 0 && variant < variants) state.variant = variant;
      return state.variant;
    },
    ends: () => ({ first: state.step === 0, last: state.step === count - 1 }),
  };
  api.go(start);
  return api;
}

/* Bring one step-through of the page to life. */
function enliven(root) {
  const slider = root.querySelector("input[type=range]");
  const labels = slider.dataset.labels.split("|");
  const frames = [...root.querySelectorAll(".cfl-frame")];
  const buttons = [...root.querySelectorAll("button[data-move]")];
  const switches = [...root.querySelectorAll("input[type=radio]")];
  const live = root.querySelector(".cfl-live");
  const at = stepper(labels.length, Math.max(1, switches.length), Number(root.dataset.start));
  let waiting = 0;

  function draw(announce) {
    const { step, variant } = at.state;
    let now = null;
    for (const frame of frames) {
      const shown = Number(frame.dataset.step) === step && Number(frame.dataset.variant) === variant;
      frame.classList.toggle("now", shown);
      if (shown) now = frame;
    }
    slider.value = String(step);
    slider.setAttribute("aria-valuetext", labels[step]);
    root.querySelector("output").textContent = labels[step];
    const { first, last } = at.ends();
    for (const button of buttons) button.setAttribute("aria-disabled", String(Number(button.dataset.move) < 0 ? first : last));
    clearTimeout(waiting); // while the slider is dragged nothing is said
    if (announce) waiting = setTimeout(() => { live.textContent = now.querySelector(".cfl-says").textContent; }, 400);
  }

  slider.addEventListener("input", () => { at.go(Number(slider.value)); draw(true); });
  for (const button of buttons) button.addEventListener("click", () => { at.move(Number(button.dataset.move)); draw(true); });
  for (const choice of switches) choice.addEventListener("change", () => { at.show(Number(choice.value)); draw(true); });
  root.addEventListener("keydown", (event) => {
    const own = event.target.matches("input, summary, .cfl-table *"); // these know what to do with arrow keys
    if (own || event.altKey || event.ctrlKey || event.metaKey || !at.key(event.key)) return;
    event.preventDefault();
    draw(true);
  });
  root.classList.add("live");
  draw(false);
}

if (typeof document === "undefined") module.exports = { stepper };
else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".cfl-steps").forEach(enliven));
else document.querySelectorAll(".cfl-steps").forEach(enliven);
