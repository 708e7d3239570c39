// The step-throughs' core, without a page: node --test tests/steps.test.js
const assert = require("node:assert");
const test = require("node:test");
const { stepper } = require("../book/_static/steps.js");

test("it starts where it is told, and stays between the ends", () => {
  const at = stepper(5, 1, 2);
  assert.strictEqual(at.state.step, 2);
  assert.strictEqual(at.move(1), 3);
  assert.strictEqual(at.move(9), 4);
  assert.strictEqual(at.move(-9), 0);
  assert.strictEqual(stepper(5, 1, 99).state.step, 4);
});

test("arrow keys go one further, Home and End to the ends, others nowhere", () => {
  const at = stepper(12, 1, 5);
  const after = (name) => { at.key(name); return at.state.step; };
  assert.deepStrictEqual(["ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown"].map(after), [6, 7, 6, 5]);
  assert.deepStrictEqual(["PageUp", "PageDown", "End", "Home"].map(after), [8, 5, 11, 0]);
  assert.strictEqual(at.key("ArrowLeft"), true);
  assert.strictEqual(at.key("Tab"), false);
  assert.strictEqual(at.state.step, 0);
});

test("it says when there is nothing further", () => {
  const at = stepper(3, 1, 0);
  assert.deepStrictEqual(at.ends(), { first: true, last: false });
  at.key("End");
  assert.deepStrictEqual(at.ends(), { first: false, last: true });
});

test("a variant that is not there is not shown", () => {
  const at = stepper(3, 2, 0);
  assert.strictEqual(at.show(1), 1);
  assert.strictEqual(at.show(2), 1);
  assert.strictEqual(at.show(NaN), 1);
  assert.strictEqual(at.show(0), 0);
});
