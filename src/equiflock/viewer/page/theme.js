/** The theme: that of the system until the user chooses one, which the browser remembers. */

import { byId } from "./player/dom.js";

const systemIsLight = matchMedia("(prefers-color-scheme: light)");

/** Return the theme to show, "dark" or "light". */
const readTheme = () => localStorage.getItem("theme") ?? (systemIsLight.matches ? "light" : "dark");

/** Show the theme on a screen, now and whenever it changes; the button switches between dark and light. */
export function bindTheme(screen) {
  const button = byId("theme");
  const other = () => (screen.theme === "dark" ? "light" : "dark");
  const show = () => {
    document.documentElement.dataset.theme = screen.theme = readTheme();
    button.ariaLabel = `Switch to ${other()} theme`;
    button.title = `${button.ariaLabel} (D)`;
  };
  systemIsLight.addEventListener("change", show);
  button.onclick = () => {
    localStorage.setItem("theme", other());
    show();
  };
  show();
}
