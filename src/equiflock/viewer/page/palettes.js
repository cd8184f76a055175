/** Colours of the scene; the rest of the page has its own, in style.css. */

/**
 * Those of each theme, "#rrggbb" or "#rrggbbaa". Agents are coloured by heading: oklch(lightness chroma heading),
 * as in CSS, the hue being the angle from the x axis. `brush`, `obstacle` and `lead` are also the kinds of highlights.
 */
export const PALETTES = {
  dark: {
    background: "#0b0f17",
    hairline: "#2a3344",
    grid: "#9fb4d816",
    edge: "#a9bfe638",
    ink: "#ffffff",
    disk: "#7c5cf02e",
    obstacle: "#a78bfa",
    brush: "#ff6b6b",
    lead: "#4ade80",
    lightness: 0.8,
    chroma: 0.14,
    trail: 0.5, // opacity of its young end
  },
  light: {
    background: "#fbfaf7",
    hairline: "#d8d4ca",
    grid: "#3b332012",
    edge: "#3a425533",
    ink: "#14171f",
    disk: "#7c5cf024",
    obstacle: "#7c4fe0",
    brush: "#d9363e",
    lead: "#15924a",
    lightness: 0.6,
    chroma: 0.15,
    trail: 0.36,
  },
};
