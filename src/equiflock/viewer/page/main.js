/** Starts the page: creates the view, and binds buttons and keys. */

import { byId, make } from "./player/dom.js";
import { reducedMotion } from "./player/motion.js";
import { bindTheme } from "./theme.js";
import { acceptsTyping } from "./tools.js";
import { View } from "./view.js";

/** Select a tool, and mark its button as pressed. */
function chooseTool(view, tool) {
  view.tools.selectTool(tool);
  for (const button of document.querySelectorAll("button[data-tool]"))
    button.setAttribute("aria-pressed", button.dataset.tool === tool);
}

/** Copy the page's address to the clipboard or, if that fails, show it in a notice. */
async function copyLink(view) {
  try {
    await navigator.clipboard.writeText(location.href);
    view.notices.show("Link copied.");
  } catch {
    view.notices.show(`Copy the address of this page: ${location.href}`);
  }
}

/** Switch the orbit technique on or off; without obstacles, show a notice. */
function toggleOrbit(view) {
  if (byId("orbit-row").hidden) view.notices.show("No obstacles: draw one with the obstacle tool (3).");
  else byId("orbit").click();
}

/** Bind the buttons, checkboxes, sliders and menus outside of the form. */
function bindButtons(view) {
  const press = {
    play: () => view.play(!view.playing),
    step: () => view.step(),
    reset: () => view.reset(),
    scatter: () => view.actions.scatter(),
    follow: () => view.follow(),
    help: () => {
      byId("guide").showModal();
      byId("guide").scrollTop = 0; // the focus is on the button at its end
    },
    save: () => view.save(),
    clear: () => view.actions.clearDisks(),
    "fail-one": () => view.actions.fail(byId("fail-kind").value, 1),
    "fail-five": () => view.actions.fail(byId("fail-kind").value, 5),
    repair: () => view.actions.repair(),
    link: () => copyLink(view),
  };
  for (const [id, action] of Object.entries(press)) byId(id).onclick = action;
  for (const key of ["edges", "trails"]) byId(key).onchange = () => view.changeLook({ [key]: byId(key).checked });
  byId("orbit").onchange = () => view.actions.setOrbit(byId("orbit").checked);
  byId("speed").onchange = () => view.changeLook({ speed: Number(byId("speed").value) });
  byId("slider").oninput = () => view.seek(byId("slider").valueAsNumber);
  byId("flock").onchange = () => view.chooseFlock(byId("flock").valueAsNumber || 0);
  byId("saved").onsubmit = (event) => event.preventDefault();
  for (const button of document.querySelectorAll("button[data-tool]"))
    button.onclick = () => chooseTool(view, button.dataset.tool);
}

/** Bind the keys; they are ignored without a flight, with Ctrl, Meta or Alt, in inputs, and while the help is open. */
function bindKeys(view) {
  const click = (id) => () => byId(id).click();
  const always = {
    " ": click("play"),
    ".": click("step"),
    r: click("reset"),
    f: click("follow"),
    e: click("edges"),
    t: click("trails"),
    d: click("theme"),
    l: click("link"),
    "?": click("help"),
    1: () => chooseTool(view, "pan"),
    5: () => chooseTool(view, "inspect"),
    escape: () => view.inspector.close(),
    "+": () => view.tools.zoom(1.25),
    "=": () => view.tools.zoom(1.25),
    "-": () => view.tools.zoom(0.8),
  };
  const live = {
    s: click("scatter"),
    n: click("another"),
    o: () => toggleOrbit(view),
    x: click("fail-one"),
    backspace: () => view.actions.clearDisks(),
    2: () => chooseTool(view, "lead"),
    3: () => chooseTool(view, "obstacle"),
    4: () => chooseTool(view, "remove"),
  };
  const playback = { arrowleft: () => view.stepFrames(-1), arrowright: () => view.stepFrames(1) };
  addEventListener("keydown", (event) => {
    view.screen.requestRedraw();
    const busy = event.ctrlKey || event.metaKey || event.altKey || acceptsTyping(event.target) || byId("guide").open;
    // Space presses the focused button.
    if (busy || !view.frame || (event.key === " " && event.target instanceof HTMLButtonElement)) return;
    const action = { ...always, ...(view.playback ? playback : live) }[event.key.toLowerCase()];
    if (!action && (view.playback || !view.tools.steerByKey(event.key))) return;
    action?.();
    event.preventDefault();
  });
}

/** Bind Ctrl+Z to undo, and Shift+Ctrl+Z to redo; not in inputs, which have their own. */
function bindUndo(view) {
  addEventListener("keydown", (event) => {
    const isBound = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z";
    if (!isBound || acceptsTyping(event.target) || byId("guide").open) return;
    if (event.shiftKey) view.redo();
    else view.undo();
    event.preventDefault();
  });
}

/** Copy the icons of tools and buttons into the help. */
function showIcons() {
  for (const place of document.querySelectorAll("[data-icon]")) {
    const { icon } = place.dataset;
    place.append((document.querySelector(`[data-tool=${icon}]`) ?? byId(icon)).querySelector("svg").cloneNode(true));
  }
}

/** Return the focus to the flock after a click, so that Space plays instead of pressing the button again. */
function returnFocus(view) {
  let byPointer = false;
  addEventListener("pointerdown", () => (byPointer = true), true);
  addEventListener("keydown", () => (byPointer = false), true);
  const returnAfter = (kind) => (event) => {
    if (byPointer && event.target.closest(kind) && !byId("guide").open) byId("scene").focus({ preventScroll: true });
  };
  addEventListener("click", returnAfter("button"));
  addEventListener("change", returnAfter("select, input:not([type=number])"));
  addEventListener("keydown", ({ key, target }) => {
    if (!["Enter", "Escape"].includes(key) || !target.matches("input:is([type=number], [type=text])")) return;
    if (key === "Escape") view.showSetting(); // discards the input
    byId("scene").focus({ preventScroll: true }); // which fires the change event of the box
  });
}

try {
  const view = new View();
  bindTheme(view.screen);
  bindButtons(view);
  bindKeys(view);
  bindUndo(view);
  returnFocus(view);
  showIcons();
  chooseTool(view, "pan");
  view.play(!reducedMotion.matches);
  if (reducedMotion.matches) {
    const action = { text: "Play", onPress: () => view.play(true) };
    view.notices.show("Paused, as your system asks for less motion.", { id: "paused", sticky: true, action });
  }
  addEventListener("popstate", ({ state }) => state && view.restore(state.content)); // Back or Forward
  addEventListener("hashchange", () => view.readAddress()); // the address was edited
  for (const event of ["pointermove", "pointerdown", "wheel", "keydown"])
    addEventListener(event, () => view.screen.requestRedraw(), { passive: true });
  /** For debugging and tests. */
  globalThis.flockView = view;
} catch (error) {
  byId("notices").append(make("p", { className: "bad" }, error.message));
  throw error;
}
